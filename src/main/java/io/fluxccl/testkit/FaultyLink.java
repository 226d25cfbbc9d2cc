// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.testkit;

import java.util.ArrayList;
import java.util.List;

/**
 * One direction of one connection, over all sockets that carry it in turn: counts its messages and
 * knows its faults. Used by the thread of the sending rank's network only.
 */
final class FaultyLink {
  private final int from;
  private final int to;
  private final List<Fault> pending = new ArrayList<>();
  private long messages;
  private long bytes;

  FaultyLink(int from, int to, int connection, List<Fault> faults, boolean checksums) {
    this.from = from;
    this.to = to;
    for (Fault fault : faults) {
      if (fault.from() == from
          && fault.to() == to
          && fault.connection() == connection
          && (checksums || !fault.kind().needsChecksums())) {
        pending.add(fault);
      }
    }
  }

  int from() {
    return from;
  }

  int to() {
    return to;
  }

  /** Returns what is to happen to the next message, of that length; or null. */
  Fault due(long length) {
    for (Fault fault : pending) {
      if (fault.isDue(messages, bytes, length)) {
        return fault;
      }
    }
    return null;
  }

  void happened(Fault fault) {
    pending.remove(fault);
  }

  void sent(long length) {
    messages++;
    bytes += length;
  }
}
