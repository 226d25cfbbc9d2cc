/**
 * A network over RDMA: {@link io.fluxccl.netplugin.ib.IbNetPlugin}. Each RDMA device is a device; a
 * connection is one queue pair, which who tests its requests drives.
 *
 * <p>Imports the root package, {@code device.host}, {@code netplugin}, {@code transport} and {@code
 * transport.ib}.
 */
package io.fluxccl.netplugin.ib;
