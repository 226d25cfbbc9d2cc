/**
 * RDMA as a transport, IB0 to IB7: InfiniBand and RoCE by one queue pair for each connection, which
 * one thread at a time uses. The implementation of {@link io.fluxccl.transport.ib.Verbs} is loaded
 * by name, because it needs a native library that is not everywhere.
 *
 * <p>Imports the root package, {@code concurrent}, {@code wire}, {@code device}, {@code
 * device.host} and {@code transport}.
 */
package io.fluxccl.transport.ib;
