/**
 * What most users call: operations in which every rank takes part, as cold Monos over a stream.
 *
 * <p>Imports everything below.
 */
package io.fluxccl.collective;
