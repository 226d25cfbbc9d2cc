// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.channel;

import io.fluxccl.collective.pipe.CacheLines;
import io.fluxccl.collective.pipe.SlotRing;
import io.fluxccl.device.DeviceKind;
import io.fluxccl.proxy.ChannelTrigger;
import io.fluxccl.semaphore.SemaphoreDescriptor;

/**
 * The layout of a rank's staging memory, the same on every rank. It has an inbox for each lane and
 * each other rank, then as many outboxes, and then the two semaphores of each pipe. A box holds a
 * ring of slots.
 *
 * @param nRanks number of ranks
 * @param lanes number of lanes, which work in parallel, each with pipes of its own
 * @param slotBytes bytes of a slot's payload, a power of two
 * @param boxBytes bytes of a box
 */
record PipeLayout(int nRanks, int lanes, int slotBytes, long boxBytes) {
  /** Slots of a box, a power of two. */
  static final int SLOTS = SlotRing.SLOTS;

  /** Number of released slots that a credit stands for. */
  static final int SLOTS_PER_CREDIT = 8;

  /**
   * Number of steps by which a rank receives later than it sends. In each step it sends at most two
   * pieces to a rank, so at most 2 x (DEPTH + 1) are in flight. More than SLOTS - SLOTS_PER_CREDIT
   * + 1 might wait for a credit in a cycle of ranks.
   */
  static final int DEPTH = 3;

  /** Like {@link #DEPTH}, if a step has at most one piece for a rank. */
  static final int SINGLE_DEPTH = 8;

  /** Pieces of a part that go around a ring together: at most those that need no credit. */
  static final int RING_PIECES = 4;

  /** Approximate bytes of all inboxes of a rank, and of all outboxes. */
  private static final long BUDGET = 64 << 20;

  /**
   * The bytes of {@link #BUDGET} for all ranks of a host together, as their memory is the host's.
   */
  private static final long HOST_BUDGET = 512 << 20;

  private static final int MAX_SLOT = 128 << 10;
  private static final int MIN_SLOT = 4 << 10;
  private static final int MIN_HOST_SLOT = 1 << 10;

  /** The least bytes of a pair's message that make a lane's share. */
  private static final int LEAST_SHARE = 32 << 10;

  private static final int LEAST_PIECE = 16 << 10;
  private static final int PIECES = 8;

  /**
   * Returns the layout for ranks on one or more hosts.
   *
   * @param most the most ranks of a host
   * @param mostLanes the most lanes
   */
  static PipeLayout of(DeviceKind kind, int nRanks, int most, int mostLanes) {
    // A proxy service has MAX_IDS semaphores, and a pipe uses two of them.
    int lanes = Math.max(1, Math.min(mostLanes, ChannelTrigger.MAX_IDS / 2 / (nRanks - 1)));
    boolean onHost = kind == DeviceKind.HOST;
    long budget = onHost ? Math.min(BUDGET, HOST_BUDGET / most) : BUDGET;
    long share = budget / SLOTS / lanes / (nRanks - 1);
    int slot = MAX_SLOT;
    while (slot > (onHost ? MIN_HOST_SLOT : MIN_SLOT) && slot > share) {
      slot /= 2;
    }
    // The kernels on GPUs have flags elsewhere, and slots without headers.
    long box = onHost ? new SlotRing(slot).bytes() : (long) SLOTS * slot;
    return new PipeLayout(nRanks, lanes, slot, box);
  }

  /** Returns how many pipes a rank has. */
  int pipes() {
    return lanes * (nRanks - 1);
  }

  /** Returns the index of a rank's pipe to another rank. */
  int index(int lane, int rank, int peer) {
    return lane * (nRanks - 1) + (peer < rank ? peer : peer - 1);
  }

  long inboxOffset(int lane, int rank, int peer) {
    return index(lane, rank, peer) * boxBytes;
  }

  long outboxOffset(int lane, int rank, int peer) {
    return (pipes() + index(lane, rank, peer)) * boxBytes;
  }

  /** Returns where the values of a semaphore begin, one of two of a rank's pipe to a peer. */
  long semaphoreOffset(int which, int lane, int rank, int peer) {
    long number = which * (long) pipes() + index(lane, rank, peer);
    return 2 * pipes() * boxBytes + number * SemaphoreDescriptor.STATE_LENGTH;
  }

  /** Returns the bytes of a rank's memory. */
  long bytes() {
    return 2 * pipes() * (boxBytes + SemaphoreDescriptor.STATE_LENGTH);
  }

  /** Returns how many lanes share a pair's bytes. */
  int lanesOf(long bytes) {
    return (int) Math.max(1, Math.min(lanes, bytes / LEAST_SHARE));
  }

  private long share(long bytes) {
    int sharing = lanesOf(bytes);
    return CacheLines.roundUp((bytes + sharing - 1) / sharing);
  }

  /** Returns where a lane's share of a pair's bytes begins. */
  long begin(long bytes, int lane) {
    return Math.min(bytes, share(bytes) * lane);
  }

  /** Returns where a lane's share of a pair's bytes ends. */
  long end(long bytes, int lane) {
    return Math.min(bytes, share(bytes) * (lane + 1));
  }

  /** Returns the bytes of each piece of a share; the last one may be shorter. */
  long piece(long shareBytes) {
    return Math.min(
        slotBytes, Math.max(LEAST_PIECE, CacheLines.roundUp((shareBytes + PIECES - 1) / PIECES)));
  }

  /** Returns the bytes of a piece that goes around a ring. */
  long ringPiece(long shareBytes) {
    return Math.max(
        CacheLines.LENGTH,
        Math.min(slotBytes, CacheLines.roundUp((shareBytes + RING_PIECES - 1) / RING_PIECES)));
  }
}
