package io.fluxccl.netplugin.vendor;

import io.fluxccl.netplugin.NetListenComm;
import io.fluxccl.netplugin.NetRecvComm;

/** A listener of a vendor's plugin. */
final class VendorListenComm implements NetListenComm {
  private final VendorPlugin plugin;
  private final int device;
  private final long comm;
  private final byte[] handle;
  private final CallGate gate;

  VendorListenComm(VendorPlugin plugin, int device, long comm, byte[] handle) {
    this.plugin = plugin;
    this.device = device;
    this.comm = comm;
    this.handle = handle;
    this.gate = new CallGate("a listener of " + plugin, plugin.patience());
  }

  @Override
  public byte[] handle() {
    return handle.clone();
  }

  @Override
  public NetRecvComm accept() {
    gate.enter();
    try {
      long accepted = NetPluginCalls.accept(plugin.plugin(), comm);
      plugin.check(accepted, "accept");
      return accepted == 0 ? null : plugin.keep(new VendorRecvComm(plugin, device, accepted));
    } finally {
      gate.exit();
    }
  }

  @Override
  public void close() {
    gate.close(this::end);
  }

  private void end() {
    try {
      plugin.check(NetPluginCalls.closeListen(plugin.plugin(), comm), "closeListen");
    } finally {
      plugin.forget(this);
    }
  }
}
