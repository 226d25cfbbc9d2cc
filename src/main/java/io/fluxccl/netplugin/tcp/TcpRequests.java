// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.tcp;

import io.fluxccl.netplugin.NetPlugin;
import java.util.Arrays;

/**
 * The requests of a comm, one for each message in flight, which are used in turn. There are as many
 * as were ever in flight at the same time. Only the comm's thread takes them; any thread may count
 * them.
 */
final class TcpRequests {
  private final TcpComm comm;

  /** Replaced as a whole; the length is a power of two. */
  private volatile TcpRequest[] all = {};

  private int next;

  TcpRequests(TcpComm comm) {
    this.comm = comm;
    growTo(NetPlugin.MAX_REQUESTS);
  }

  /** Returns a request that is not in flight. */
  TcpRequest free() {
    TcpRequest[] now = all;
    for (int i = 0; i < now.length; i++) {
      TcpRequest request = now[next++ & (now.length - 1)];
      if (!request.isInFlight()) {
        return request;
      }
    }
    growTo(2 * now.length);
    next = now.length + 1;
    return all[now.length];
  }

  private void growTo(int count) {
    TcpRequest[] more = Arrays.copyOf(all, count);
    for (int i = all.length; i < count; i++) {
      more[i] = new TcpRequest(comm);
    }
    all = more;
  }

  boolean isAnyArriving() {
    for (TcpRequest request : all) {
      if (request.isArriving()) {
        return true;
      }
    }
    return false;
  }

  int inFlight() {
    int count = 0;
    for (TcpRequest request : all) {
      count += request.isInFlight() ? 1 : 0;
    }
    return count;
  }

  /** Returns the age of the oldest request in flight, 0 if there is none. */
  long oldestNanos(long nowNanos) {
    long oldest = 0;
    for (TcpRequest request : all) {
      if (request.isInFlight()) {
        oldest = Math.max(oldest, nowNanos - request.postedNanos());
      }
    }
    return oldest;
  }
}
