// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.reactive;

import io.fluxccl.netplugin.NetMemory;
import io.fluxccl.netplugin.NetRequest;
import io.fluxccl.netplugin.NetSendComm;

/** Checks the sending end of a connection. */
final class CheckedSendComm extends CheckedComm implements NetSendComm {
  private final NetSendComm comm;

  CheckedSendComm(CheckedNetPlugin plugin, NetSendComm comm) {
    super(plugin, comm, plugin.maxRequests() * plugin.properties(comm.device()).maxRecvs(), 0);
    this.comm = comm;
  }

  @Override
  public NetRequest isend(long address, long size, int tag, NetMemory memory) {
    CheckedRequest request = next("isend");
    checkRange("isend", memory, address, size);
    return posted(request, comm.isend(address, size, tag, ((CheckedMemory) memory).registered()));
  }
}
