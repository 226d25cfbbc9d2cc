/**
 * For tests of code that uses FluxCCL: ranks in one JVM, without a network and without a GPU.
 *
 * <p>Imports everything below.
 */
package io.fluxccl.testkit;
