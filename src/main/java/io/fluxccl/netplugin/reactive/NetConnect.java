// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.reactive;

import io.fluxccl.Deadline;
import io.fluxccl.netplugin.NetHandle;
import io.fluxccl.netplugin.NetPlugin;
import io.fluxccl.netplugin.NetSendComm;
import reactor.core.publisher.MonoSink;

/** A connect, whose progress the plugin keeps in the handle. */
final class NetConnect extends NetOperation<NetSendComm> {
  private final NetPlugin plugin;
  private final int device;
  private final NetHandle progress;
  private boolean begun;

  NetConnect(
      NetPlugin plugin,
      int device,
      NetHandle progress,
      Deadline deadline,
      MonoSink<NetSendComm> sink) {
    super(
        progress,
        () -> "connect of " + plugin.name() + " to its peer, on device " + device,
        deadline,
        sink);
    this.plugin = plugin;
    this.device = device;
    this.progress = progress;
  }

  @Override
  NetSendComm poll() {
    begun = true;
    return plugin.connect(device, progress);
  }

  @Override
  boolean hasBegun() {
    return begun;
  }

  @Override
  void drop() {
    progress.abandon();
  }

  @Override
  void discard(NetSendComm comm) {
    comm.close();
  }
}
