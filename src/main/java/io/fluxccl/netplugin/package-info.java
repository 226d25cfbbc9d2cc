// SPDX-License-Identifier: Apache-2.0
/**
 * NCCL's interface for network plugins, in Java: a network implements {@link
 * io.fluxccl.netplugin.NetPlugin}, and its users call it.
 *
 * <p>Each connection carries messages in one direction. The receiver {@link
 * io.fluxccl.netplugin.NetPlugin#listen listens} and sends {@link
 * io.fluxccl.netplugin.NetListenComm#handle()} to the sender by other means; the sender {@link
 * io.fluxccl.netplugin.NetPlugin#connect connects} with it, the receiver {@link
 * io.fluxccl.netplugin.NetListenComm#accept accepts}. No call blocks: a call that can't proceed yet
 * returns null, and the caller repeats it. Sends and receives of one connection and tag match in
 * the order in which they were posted.
 */
@Experimental
package io.fluxccl.netplugin;

import io.fluxccl.Experimental;
