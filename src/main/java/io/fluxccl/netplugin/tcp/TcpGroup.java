// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.tcp;

import io.fluxccl.netplugin.NetRequest;
import java.util.List;

/**
 * A group of receives, which is done when all of them are. Its comm reuses it. Used by the comm's
 * thread only.
 */
final class TcpGroup implements NetRequest {
  private final TcpComm comm;
  private final TcpRequest[] members = new TcpRequest[TcpComm.MAX_GROUP];
  private int n;
  private boolean inFlight;

  TcpGroup(TcpComm comm) {
    this.comm = comm;
  }

  /** Begins an empty group, which is one of a list, or a new one that is added to it. */
  static TcpGroup begin(List<TcpGroup> groups, TcpComm comm) {
    TcpGroup free = null;
    for (int i = 0; i < groups.size() && free == null; i++) {
      free = groups.get(i).inFlight ? null : groups.get(i);
    }
    if (free == null) {
      free = new TcpGroup(comm);
      groups.add(free);
    }
    free.n = 0;
    free.inFlight = true;
    return free;
  }

  void add(TcpRequest member) {
    members[n++] = member;
  }

  @Override
  public boolean test() {
    TcpRequest open = firstOpen();
    if (open != null) {
      comm.progress();
      open = firstOpen();
    }
    if (open != null) {
      checkWait(open);
      return false;
    }
    if (inFlight) {
      inFlight = false;
      comm.ended();
      for (int i = 0; i < n; i++) {
        members[i].finish();
      }
    }
    return true;
  }

  private void checkWait(TcpRequest open) {
    boolean waits = false;
    try {
      comm.checkWait(open);
      waits = true;
    } finally {
      if (!waits) {
        inFlight = false;
        for (int i = 0; i < n; i++) {
          members[i].abandon();
        }
      }
    }
  }

  private TcpRequest firstOpen() {
    for (int i = 0; i < n; i++) {
      if (!members[i].isDone()) {
        return members[i];
      }
    }
    return null;
  }

  @Override
  public long size(int index) {
    return members[index].size();
  }
}
