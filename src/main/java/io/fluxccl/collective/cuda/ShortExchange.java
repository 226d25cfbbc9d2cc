// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.cuda;

import io.fluxccl.collective.KernelStruct;
import io.fluxccl.device.AbortFlag;

/**
 * Short messages with one or two peers: the twin of {@code exchange_short.cuh}. Filled in for each
 * launch; used by the one thread that enqueues.
 */
final class ShortExchange extends KernelStruct {
  /** {@code ShortExchange::kMaxParts}. */
  static final int MAX_PARTS = 2;

  private static final int COUNTERS_OFFSET = Long.BYTES;
  private static final int PARTS_OFFSET = 64;
  private static final int PART_LENGTH = 56;
  private static final int LENGTH = PARTS_OFFSET + MAX_PARTS * PART_LENGTH;

  private final long[] states;
  private final int rank;
  private int nParts;

  /**
   * Creates the struct of a lane.
   *
   * @param states addresses of the region, by rank
   * @param abort the abort flag that waits watch
   */
  ShortExchange(long[] states, int rank, AbortFlag abort) {
    super(LENGTH);
    this.states = states;
    this.rank = rank;
    putLong(abort.deviceAddress());
  }

  /**
   * Fills in parts. A part that only sends and one that only receives become one if their peer is
   * the same.
   *
   * @return whether the parts are few, their messages short, and their addresses and sizes
   *     multiples of a packet's unit; if not, another kernel must exchange them
   */
  boolean fill(ExchangeParts parts, ExchangeRing ring) {
    int count = parts.count();
    if (count == 0 || count > MAX_PARTS) {
      return false;
    }
    for (int i = 0; i < count; i++) {
      if (!isShort(parts, i, ring)) {
        return false;
      }
    }
    boolean isPair = count == 1 || parts.isOneExchange();
    nParts = isPair ? 1 : MAX_PARTS;
    at(COUNTERS_OFFSET).putLong(counters(rank, ring));
    putLong(parts.ownFrom()).putLong(parts.ownTo()).putLong(parts.ownBytes());
    putInt(ring.slots()).putInt(Integer.numberOfTrailingZeros(ring.slots()));
    putInt(nParts).putInt(rank);
    at(PARTS_OFFSET);
    for (int i = 0; i < nParts; i++) {
      put(parts, i, isPair ? count - 1 : i, ring);
    }
    return true;
  }

  /** Returns the number of parts, with two that became one counted once. */
  int nParts() {
    return nParts;
  }

  private static boolean isShort(ExchangeParts parts, int i, ExchangeRing ring) {
    long bytes = Math.max(parts.sendBytes(i), parts.receiveBytes(i));
    long all = parts.from(i) | parts.to(i) | parts.sendBytes(i) | parts.receiveBytes(i);
    return all % ring.unit() == 0 && ring.isShort(bytes);
  }

  /** Adds what one part sends and what one part, the same or another, receives. */
  private void put(ExchangeParts parts, int sending, int receiving, ExchangeRing ring) {
    int to = parts.peer(sending);
    int from = parts.peer(receiving);
    putLong(parts.from(sending)).putLong(parts.to(receiving));
    putLong(states[to] + ring.slotsOffset(rank));
    putLong(states[rank] + ring.slotsOffset(from));
    putLong(counters(from, ring));
    putInt((int) parts.sendBytes(sending)).putInt((int) parts.receiveBytes(receiving));
    putInt(to).putInt(from);
  }

  private long counters(int at, ExchangeRing ring) {
    return states[at] + ring.offset();
  }
}
