// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.vendor;

import io.fluxccl.netplugin.NetMemory;
import io.fluxccl.netplugin.NetRequest;
import io.fluxccl.netplugin.NetSendComm;

/** The sending end of a connection of a vendor's plugin. */
final class VendorSendComm extends VendorConnection implements NetSendComm {
  VendorSendComm(VendorPlugin plugin, int device, long comm) {
    super(plugin, device, comm, plugin.maxRequests() * plugin.properties(device).maxRecvs(), 1);
  }

  @Override
  public NetRequest isend(long address, long size, int tag, NetMemory memory) {
    gate().enter();
    try {
      requireFree();
      long request = NetPluginCalls.isend(net(), object(), address, size, tag, handleOf(memory));
      return started(request, true, "isend");
    } finally {
      gate().exit();
    }
  }

  @Override
  void closeComm() {
    network().check(NetPluginCalls.closeSend(net(), object()), "closeSend");
  }
}
