// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import java.util.Arrays;

/** The bytes of messages that wait, by rank, and their limit. Only on the event loop. */
final class WaitingBytes {
  /** Half of the heap of this JVM. */
  static final long LIMIT = Runtime.getRuntime().maxMemory() / 2;

  /** Heap that a message takes besides its bytes, with a key of its own. */
  static final int OVERHEAD = 256;

  private final long[] byRank;
  private final long limit;
  private long all;

  WaitingBytes(int nRanks, long limit) {
    this.byRank = new long[nRanks];
    this.limit = limit;
  }

  /** Returns whether a message may wait too. The first one always may. */
  boolean hasRoom(byte[] message) {
    return all == 0 || all + of(message) <= limit;
  }

  /** Counts bytes of a rank; negative for bytes that no longer wait. */
  void add(int rank, long bytes) {
    byRank[rank] += bytes;
    all += bytes;
  }

  void clear() {
    Arrays.fill(byRank, 0);
    all = 0;
  }

  /** Returns the rank with most bytes. */
  int fullest() {
    int fullest = 0;
    for (int rank = 1; rank < byRank.length; rank++) {
      fullest = byRank[rank] > byRank[fullest] ? rank : fullest;
    }
    return fullest;
  }

  /** Returns the bytes of a message. */
  static long of(byte[] message) {
    return (long) message.length + OVERHEAD;
  }
}
