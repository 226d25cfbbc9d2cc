// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.vendor;

import io.fluxccl.netplugin.NetMemory;
import io.fluxccl.netplugin.NetRecvComm;
import io.fluxccl.netplugin.NetRequest;
import java.nio.ByteBuffer;
import org.agrona.BufferUtil;
import org.agrona.UnsafeApi;

/** The receiving end of a connection of a vendor's plugin. */
final class VendorRecvComm extends VendorConnection implements NetRecvComm {
  private static final long COLUMN = (long) NetPluginCalls.MAX_GROUP * Long.BYTES;

  private final ByteBuffer groupMemory =
      BufferUtil.allocateDirectAligned(NetPluginCalls.GROUP_BYTES, 64);
  private final long group = BufferUtil.address(groupMemory);

  VendorRecvComm(VendorPlugin plugin, int device, long comm) {
    super(plugin, device, comm, plugin.maxRequests(), plugin.properties(device).maxRecvs());
  }

  @Override
  public NetRequest irecv(long address, long size, int tag, NetMemory memory) {
    gate().enter();
    try {
      requireFree();
      long request = NetPluginCalls.irecv(net(), object(), address, size, tag, handleOf(memory));
      return started(request, true, "irecv");
    } finally {
      gate().exit();
    }
  }

  @Override
  public NetRequest irecv(int n, long[] addresses, long[] sizes, int[] tags, NetMemory[] memories) {
    gate().enter();
    try {
      requireFree();
      for (int i = 0; i < n; i++) {
        put(i, addresses[i], sizes[i], memories[i]);
        UnsafeApi.putLong(group + 3 * COLUMN + (long) i * Long.BYTES, tags[i]);
      }
      return started(NetPluginCalls.irecvGroup(net(), object(), n, group), true, "irecv");
    } finally {
      gate().exit();
    }
  }

  @Override
  public NetRequest iflush(int n, long[] addresses, long[] sizes, NetMemory[] memories) {
    gate().enter();
    try {
      requireFree();
      for (int i = 0; i < n; i++) {
        put(i, addresses[i], sizes[i], memories[i]);
      }
      return started(NetPluginCalls.iflush(net(), object(), n, group), false, "iflush");
    } finally {
      gate().exit();
    }
  }

  private void put(int index, long address, long size, NetMemory memory) {
    long at = group + (long) index * Long.BYTES;
    UnsafeApi.putLong(at, address);
    UnsafeApi.putLong(at + COLUMN, size);
    UnsafeApi.putLong(at + 2 * COLUMN, handleOf(memory));
  }

  @Override
  void closeComm() {
    network().check(NetPluginCalls.closeRecv(net(), object()), "closeRecv");
  }
}
