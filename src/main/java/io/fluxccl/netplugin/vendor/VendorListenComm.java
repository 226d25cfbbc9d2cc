// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.vendor;

import io.fluxccl.netplugin.NetListenComm;
import io.fluxccl.netplugin.NetRecvComm;

/** A listener of a vendor's plugin. */
final class VendorListenComm extends VendorObject<VendorPlugin> implements NetListenComm {
  private final int device;
  private final byte[] handle;

  VendorListenComm(VendorPlugin plugin, int device, long comm, byte[] handle) {
    super(plugin, comm, "a listener");
    this.device = device;
    this.handle = handle;
  }

  @Override
  public byte[] handle() {
    return handle.clone();
  }

  @Override
  public NetRecvComm accept() {
    gate().enter();
    try {
      VendorPlugin plugin = network();
      long accepted = plugin.checkObject(NetPluginCalls.accept(net(), object()), "accept");
      return accepted == 0 ? null : plugin.keep(new VendorRecvComm(plugin, device, accepted));
    } finally {
      gate().exit();
    }
  }

  @Override
  void free() {
    network().check(NetPluginCalls.closeListen(net(), object()), "closeListen");
  }
}
