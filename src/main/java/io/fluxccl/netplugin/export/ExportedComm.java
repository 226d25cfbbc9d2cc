// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.export;

import io.fluxccl.netplugin.NetComm;
import io.fluxccl.netplugin.NetMemory;
import io.fluxccl.netplugin.NetMisuse;
import io.fluxccl.netplugin.NetPlugin;
import io.fluxccl.netplugin.NetRecvComm;
import io.fluxccl.netplugin.NetRequest;
import io.fluxccl.netplugin.NetSendComm;
import java.util.Arrays;
import org.agrona.UnsafeApi;

/**
 * A comm whose requests and registrations are identified by numbers. One thread uses the requests.
 * Another thread may register and release memory at the same time.
 */
final class ExportedComm {
  /** The bits of a request's place in its number; the bits above them count the place's uses. */
  private static final int PLACE_BITS = 11;

  private static final int USES_MASK = (1 << SlotTable.USER_BITS - PLACE_BITS) - 1;

  private final NetComm comm;
  private final NetRequest[] requests;

  /** The number of requests that each place has had, so that a stale number is detected. */
  private final int[] uses;

  /** The number of messages of each request. */
  private final int[] groups;

  private final int[] free;
  private int freeCount;

  /** The registrations by number. Each change replaces the array, by one thread at a time. */
  private volatile NetMemory[] memories = new NetMemory[1];

  // Arguments of one group of receives, reused.
  private final long[] addresses;
  private final long[] sizes;
  private final int[] tags;
  private final NetMemory[] groupMemories;

  /**
   * Creates an exported comm.
   *
   * @param maxRecvs the most receives of a group
   */
  ExportedComm(NetComm comm, int maxRecvs) {
    this.comm = comm;
    int count = Math.min(NetPlugin.MAX_REQUESTS * maxRecvs, (1 << PLACE_BITS) - 1);
    requests = new NetRequest[count];
    uses = new int[count];
    groups = new int[count];
    free = new int[count];
    while (freeCount < count) {
      free[freeCount] = freeCount++;
    }
    addresses = new long[maxRecvs];
    sizes = new long[maxRecvs];
    tags = new int[maxRecvs];
    groupMemories = new NetMemory[maxRecvs];
  }

  NetComm comm() {
    return comm;
  }

  /**
   * Posts a send. Returns the user's bits of the request's number, 1 or more, or 0 if the plugin
   * returned no request.
   */
  int isend(long address, long size, int tag, long memory) {
    if (!(comm instanceof NetSendComm send)) {
      throw new NetMisuse("isend on a connection that receives, from " + comm.peer());
    }
    checkFree();
    return keep(send.isend(address, size, tag, memory(memory)), 1);
  }

  /** Posts a receive; returns as {@link #isend} does. The arrays are addresses of C arrays. */
  int irecv(int n, long data, long sizesAt, boolean wide, long tagsAt, long handles) {
    if (!(comm instanceof NetRecvComm receive)) {
      throw new NetMisuse("irecv on a connection that sends, to " + comm.peer());
    }
    checkGroup(n);
    checkFree();
    if (n == 1) {
      return keep(
          receive.irecv(
              UnsafeApi.getLong(data),
              wide ? UnsafeApi.getLong(sizesAt) : UnsafeApi.getInt(sizesAt),
              UnsafeApi.getInt(tagsAt),
              memory(UnsafeApi.getLong(handles))),
          1);
    }
    for (int i = 0; i < n; i++) {
      read(i, data, sizesAt, wide, handles);
      tags[i] = UnsafeApi.getInt(tagsAt + i * 4L);
    }
    return keep(receive.irecv(n, addresses, sizes, tags, groupMemories), n);
  }

  int iflush(int n, long data, long sizesAt, long handles) {
    if (!(comm instanceof NetRecvComm receive)) {
      throw new NetMisuse("iflush on a connection that sends, to " + comm.peer());
    }
    checkGroup(n);
    checkFree();
    for (int i = 0; i < n; i++) {
      read(i, data, sizesAt, false, handles);
    }
    return keep(receive.iflush(n, addresses, sizes, groupMemories), n);
  }

  private void read(int i, long data, long sizesAt, boolean wide, long handles) {
    addresses[i] = UnsafeApi.getLong(data + i * 8L);
    sizes[i] = wide ? UnsafeApi.getLong(sizesAt + i * 8L) : UnsafeApi.getInt(sizesAt + i * 4L);
    groupMemories[i] = memory(UnsafeApi.getLong(handles + i * 8L));
  }

  /**
   * Returns whether a request is done, and then writes its sizes to the C array at {@code sizesAt}
   * unless that is 0.
   */
  boolean test(int number, long sizesAt) {
    int index = (number & (1 << PLACE_BITS) - 1) - 1;
    NetRequest request = index >= 0 && index < requests.length ? requests[index] : null;
    if (request == null || number >>> PLACE_BITS != (uses[index] & USES_MASK)) {
      throw new NetMisuse("test of a request that is over, of " + comm.peer());
    }
    boolean failed = true;
    boolean done = false;
    try {
      done = request.test();
      failed = false;
    } finally {
      if (done || failed) {
        requests[index] = null;
        free[freeCount++] = index;
      }
    }
    if (done && sizesAt != 0) {
      for (int i = 0; i < groups[index]; i++) {
        UnsafeApi.putInt(sizesAt + i * 4L, (int) request.size(i));
      }
    }
    return done;
  }

  private void checkFree() {
    if (freeCount == 0) {
      throw new NetMisuse(
          requests.length + " requests of " + comm.peer() + " are in flight, the most");
    }
  }

  private void checkGroup(int n) {
    if (n < 1 || n > addresses.length) {
      throw new NetMisuse("a group of n=" + n + "; give 1 to " + addresses.length);
    }
  }

  private int keep(NetRequest request, int group) {
    if (request == null) {
      return 0;
    }
    int index = free[--freeCount];
    requests[index] = request;
    groups[index] = group;
    return (++uses[index] & USES_MASK) << PLACE_BITS | index + 1;
  }

  /** Adds a registration; returns its number, 1 or more. */
  synchronized int add(NetMemory memory) {
    NetMemory[] now = memories;
    int index = 1;
    while (index < now.length && now[index] != null) {
      index++;
    }
    now = Arrays.copyOf(now, Math.max(now.length, index + 1));
    now[index] = memory;
    memories = now;
    return index;
  }

  synchronized void remove(long number) {
    NetMemory[] now = memories.clone();
    NetMemory memory = memory(number);
    if (memory == null) {
      throw new NetMisuse("memory " + number + " of " + comm.peer() + " is not registered");
    }
    now[(int) number] = null;
    memories = now;
    memory.close();
  }

  private NetMemory memory(long number) {
    NetMemory[] now = memories;
    // 0 is valid for an empty message; the network refuses it for others.
    return number >= 0 && number < now.length ? now[(int) number] : null;
  }

  void close() {
    comm.close();
  }
}
