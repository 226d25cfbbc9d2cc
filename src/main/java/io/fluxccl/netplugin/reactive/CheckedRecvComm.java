// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.reactive;

import io.fluxccl.netplugin.NetMemory;
import io.fluxccl.netplugin.NetMisuse;
import io.fluxccl.netplugin.NetRecvComm;
import io.fluxccl.netplugin.NetRequest;
import java.util.Arrays;

/** Checks the receiving end of a connection. */
final class CheckedRecvComm extends CheckedComm implements NetRecvComm {
  private final NetRecvComm comm;
  private final NetMemory[] memories;

  CheckedRecvComm(CheckedNetPlugin plugin, NetRecvComm comm) {
    super(plugin, comm, plugin.maxRequests(), plugin.properties(comm.device()).maxRecvs());
    this.comm = comm;
    this.memories = new NetMemory[properties().maxRecvs()];
  }

  @Override
  public NetRequest irecv(long address, long size, int tag, NetMemory memory) {
    CheckedRequest request = next("irecv");
    checkRange("irecv", memory, address, size);
    NetRequest started = comm.irecv(address, size, tag, ((CheckedMemory) memory).registered());
    request.expect(size);
    return posted(request, started);
  }

  @Override
  public NetRequest irecv(
      int n, long[] addresses, long[] sizes, int[] tags, NetMemory[] registrations) {
    CheckedRequest request = next("irecv");
    unwrap("irecv", n, addresses, sizes, registrations);
    for (int i = 1; i < n; i++) {
      for (int j = 0; j < i; j++) {
        if (tags[i] == tags[j]) {
          throw new NetMisuse("irecv on " + this + ": tag=" + tags[i] + " is in the group twice");
        }
      }
    }
    NetRequest started = comm.irecv(n, addresses, sizes, tags, memories);
    Arrays.fill(memories, null);
    for (int i = 0; i < n; i++) {
      request.expect(sizes[i]);
    }
    return posted(request, started);
  }

  @Override
  public NetRequest iflush(int n, long[] addresses, long[] sizes, NetMemory[] registrations) {
    CheckedRequest request = next("iflush");
    unwrap("iflush", n, addresses, sizes, registrations);
    NetRequest started = comm.iflush(n, addresses, sizes, memories);
    Arrays.fill(memories, null);
    return posted(request, started);
  }

  private void unwrap(
      String call, int n, long[] addresses, long[] sizes, NetMemory[] registrations) {
    if (n < 1 || n > properties().maxRecvs()) {
      throw new NetMisuse(
          call + " on " + this + ": n=" + n + "; give 1 to " + properties().maxRecvs());
    }
    for (int i = 0; i < n; i++) {
      checkRange(call, registrations[i], addresses[i], sizes[i]);
      memories[i] = ((CheckedMemory) registrations[i]).registered();
    }
  }
}
