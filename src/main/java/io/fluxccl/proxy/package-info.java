/**
 * How a device asks the host to do something: the ring of 128-bit triggers that kernels push to,
 * and the agent that takes them off and hands them to a handler.
 *
 * <p>Imports the root package, {@code device} and {@code device.host}; knows nothing of what a
 * trigger means beyond its bits.
 */
package io.fluxccl.proxy;
