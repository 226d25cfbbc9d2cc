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
 * ring of slots. On the host device, boxes of neighbours in a ring or a tree have larger slots, so
 * that many ranks don't cut these algorithms' data into small pieces. Pages that no algorithm uses
 * cost no memory.
 *
 * @param nRanks number of ranks
 * @param lanes number of lanes, which work in parallel, each with pipes of its own
 * @param slotBytes bytes of a slot's payload, a power of two
 * @param boxBytes bytes of a box
 * @param nearSlotBytes as {@code slotBytes}, of neighbours
 * @param nearBoxBytes as {@code boxBytes}, of neighbours; 0 if they have the same boxes as others
 */
record PipeLayout(
    int nRanks, int lanes, int slotBytes, long boxBytes, int nearSlotBytes, long nearBoxBytes) {
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

  /** The share of a budget that the boxes of neighbours may use. */
  private static final int NEAR_SHARE = 4;

  /** The most neighbours of a rank: two in the ring, three in the tree. */
  private static final int MOST_NEAR = 5;

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
    int slot = slot(budget / SLOTS / lanes / (nRanks - 1), onHost ? MIN_HOST_SLOT : MIN_SLOT);
    if (!onHost) {
      // The kernels on GPUs have flags elsewhere, and slots without headers.
      return new PipeLayout(nRanks, lanes, slot, (long) SLOTS * slot, slot, 0);
    }
    int near = slot(budget / NEAR_SHARE / SLOTS / lanes / MOST_NEAR, MIN_HOST_SLOT);
    long box = new SlotRing(slot).bytes();
    return near > slot
        ? new PipeLayout(nRanks, lanes, slot, box, near, new SlotRing(near).bytes())
        : new PipeLayout(nRanks, lanes, slot, box, slot, 0);
  }

  private static int slot(long share, int least) {
    int slot = MAX_SLOT;
    while (slot > least && slot > share) {
      slot /= 2;
    }
    return slot;
  }

  /** Returns how many pipes a rank has. */
  int pipes() {
    return lanes * (nRanks - 1);
  }

  /** Returns the index of a rank's pipe to another rank. */
  int index(int lane, int rank, int peer) {
    return lane * (nRanks - 1) + (peer < rank ? peer : peer - 1);
  }

  /** Returns the bytes of a slot's payload of a rank's pipe to a peer. */
  int slotBytes(int rank, int peer) {
    return near(rank, peer) < 0 ? slotBytes : nearSlotBytes;
  }

  long inboxOffset(int lane, int rank, int peer) {
    int near = near(rank, peer);
    return near < 0
        ? index(lane, rank, peer) * boxBytes
        : pipes() * boxBytes + (lane * MOST_NEAR + near) * nearBoxBytes;
  }

  long outboxOffset(int lane, int rank, int peer) {
    return boxesBytes() + inboxOffset(lane, rank, peer);
  }

  /** Returns the bytes of all inboxes. */
  private long boxesBytes() {
    return pipes() * boxBytes + lanes * MOST_NEAR * nearBoxBytes;
  }

  /** Returns the index of a peer among a rank's neighbours with larger boxes, or -1. */
  private int near(int rank, int peer) {
    if (nearBoxBytes == 0) {
      return -1;
    }
    int around = Math.floorMod(peer - rank, nRanks);
    return around == 1 ? 0 : around == nRanks - 1 ? 1 : nearInTree(rank, peer);
  }

  private int nearInTree(int rank, int peer) {
    int index = HostTree.neighbours(rank, nRanks).indexOf(peer);
    return index < 0 ? -1 : 2 + index;
  }

  /** Returns where the values of a semaphore begin, one of two of a rank's pipe to a peer. */
  long semaphoreOffset(int which, int lane, int rank, int peer) {
    long number = which * (long) pipes() + index(lane, rank, peer);
    return 2 * boxesBytes() + number * SemaphoreDescriptor.STATE_LENGTH;
  }

  /** Returns the bytes of a rank's memory. */
  long bytes() {
    return 2 * (boxesBytes() + (long) pipes() * SemaphoreDescriptor.STATE_LENGTH);
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
    return Math.min(slotBytes, wholePiece(shareBytes));
  }

  /** Returns the bytes of each piece of a share that goes along a tree. */
  long treePiece(long shareBytes) {
    return Math.min(nearSlotBytes, wholePiece(shareBytes));
  }

  private static long wholePiece(long shareBytes) {
    return Math.max(LEAST_PIECE, CacheLines.roundUp((shareBytes + PIECES - 1) / PIECES));
  }

  /** Returns the bytes of a piece that goes around a ring. */
  long ringPiece(long shareBytes) {
    return Math.max(
        CacheLines.LENGTH,
        Math.min(nearSlotBytes, CacheLines.roundUp((shareBytes + RING_PIECES - 1) / RING_PIECES)));
  }
}
