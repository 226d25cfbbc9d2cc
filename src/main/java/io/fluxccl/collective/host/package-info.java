/**
 * Collectives of the host device whose ranks map each other's memory: kernels in Java.
 *
 * <p>Imports {@code collective} and everything below it; is found by ServiceLoader.
 */
package io.fluxccl.collective.host;
