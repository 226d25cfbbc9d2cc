/**
 * RDMA as a transport, IB0 to IB7: InfiniBand and RoCE by one queue pair a connection, which one
 * thread at a time works with. The verbs are behind {@link io.fluxccl.transport.ib.Verbs}; who
 * implements them is loaded by name, because it needs a native library that is not everywhere.
 *
 * <p>Imports the root package, {@code device}, {@code device.host} and {@code transport}.
 */
package io.fluxccl.transport.ib;
