/**
 * NCCL's interface for network plugins, in Java: {@link io.fluxccl.netplugin.NetPlugin} is what a
 * network implements and what its users call.
 *
 * <p>Connections are of one direction. The receiver {@link io.fluxccl.netplugin.NetPlugin#listen
 * listens} and hands {@link io.fluxccl.netplugin.NetListenComm#handle()} to the sender by other
 * means; the sender {@link io.fluxccl.netplugin.NetPlugin#connect connects} with it, the receiver
 * {@link io.fluxccl.netplugin.NetListenComm#accept accepts}. Nothing blocks: who is too early gets
 * null and asks again. Sends and receives of one connection match in the order in which they were
 * posted.
 */
package io.fluxccl.netplugin;
