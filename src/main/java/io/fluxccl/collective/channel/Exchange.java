// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.channel;

import io.fluxccl.DataType;
import io.fluxccl.ReduceOp;
import io.fluxccl.collective.BoundCall;
import io.fluxccl.collective.Collective;
import io.fluxccl.collective.CollectiveCall;
import io.fluxccl.collective.Partition;

/**
 * A collective as one or two exchanges between all pairs of ranks. Data of the first exchange is
 * placed or reduced; a second one forwards what each rank has got by the first.
 *
 * <pre>
 *                     first                              second
 *   all-reduce        parts to all, reduced              the reduced part to all
 *   reduce            parts to all, reduced              the reduced part to the root
 *   broadcast         the root's parts, one to each      the part to all but the root
 *   all others,       each rank's data to the ranks
 *   small reductions  that need it
 * </pre>
 */
final class Exchange {
  /** The most bytes for which one exchange of whole buffers is faster than two of parts. */
  static final long LEAST_SPLIT = 16 << 10;

  final int rank;
  final int nRanks;
  final DataType type;
  final ReduceOp op;

  /** The bytes by rank that this rank sends in the first exchange, from {@link #input}. */
  PeerByteRanges give = PeerByteRanges.NOTHING;

  /** The bytes by rank that this rank receives in the first exchange, to {@link #place}. */
  PeerByteRanges take = PeerByteRanges.NOTHING;

  /** The bytes by rank that it sends in the second exchange, from {@link #forwardFrom}. */
  PeerByteRanges forward = PeerByteRanges.NOTHING;

  /** The bytes by rank that it receives in the second exchange, to {@link #gather}. */
  PeerByteRanges collect = PeerByteRanges.NOTHING;

  final boolean reduces;
  final boolean twice;

  /** Whether a message goes to each rank even if it has no bytes. */
  final boolean always;

  long input;

  /** Address of this rank's own part of the reduced data. */
  long own;

  /** Address of the result; 0 if the result is only forwarded. */
  long place;

  long forwardFrom;
  long gather;
  long selfFrom;
  long selfTo;
  long selfBytes;

  Exchange(BoundCall bound) {
    CollectiveCall call = bound.call();
    this.rank = bound.rank();
    this.nRanks = bound.nRanks();
    this.type = call.type();
    this.op = call.op();
    this.reduces = call.collective().reduces();
    this.always = call.collective() == Collective.BARRIER;
    this.twice = isTwice(bound);
    this.input = call.inputAddress();
    long output = call.outputAddress();
    this.own = input;
    this.place = output;
    this.gather = output;
    if (twice) {
      split(call, output);
    } else {
      whole(call);
    }
    if (!reduces) {
      self(call, output);
    }
  }

  /** Returns whether a call takes two exchanges; the same on every rank. */
  static boolean isTwice(BoundCall call) {
    boolean splits = call.totalBytes() > LEAST_SPLIT;
    return switch (call.call().collective()) {
      case ALL_REDUCE, REDUCE -> splits;
      // With two ranks a broadcast's parts would go both ways over the same link.
      case BROADCAST -> splits && call.nRanks() > 2;
      default -> false;
    };
  }

  private void split(CollectiveCall call, long output) {
    int root = call.root();
    long size = call.countBytes();
    long stride = Partition.chunkElements(call.count(), type, nRanks) * type.size();
    PeerByteRanges parts = PeerByteRanges.parts(size, stride);
    long begin = parts.offset(rank);
    PeerByteRanges mine = PeerByteRanges.whole(parts.bytes(rank));
    own = input + begin;
    place = output == 0 ? 0 : output + begin;
    forwardFrom = place;
    switch (call.collective()) {
      case ALL_REDUCE -> {
        give = parts;
        take = mine;
        forward = mine;
        collect = parts;
      }
      case REDUCE -> {
        give = parts;
        take = mine;
        collect = rank == root ? parts : PeerByteRanges.NOTHING;
        forward = rank == root ? PeerByteRanges.NOTHING : mine.only(root);
        place = rank == root ? place : 0;
      }
      default -> {
        give = rank == root ? parts : PeerByteRanges.NOTHING;
        take = rank == root ? PeerByteRanges.NOTHING : mine.only(root);
        forward = rank == root ? mine : mine.except(root);
        forwardFrom = rank == root ? own : place;
        collect = rank == root ? PeerByteRanges.NOTHING : parts;
      }
    }
  }

  private void whole(CollectiveCall call) {
    switch (call.collective()) {
      case FUSED_ALL_REDUCE -> throw new IllegalStateException(call + " is no exchange");
      case SEND_RECEIVE -> {
        give =
            PeerByteRanges.whole(call.sendBytes(rank, call.destination()))
                .only(peer(call.destination()));
        take =
            PeerByteRanges.whole(call.receiveBytes(rank, call.source())).only(peer(call.source()));
      }
      case ALL_TO_ALL_V -> {
        give = PeerByteRanges.listed(nRanks, peer -> call.sendBytes(rank, peer));
        take = PeerByteRanges.listed(nRanks, peer -> call.receiveBytes(rank, peer));
      }
      default -> {
        Collective kind = call.collective();
        boolean fromRoot = kind == Collective.BROADCAST || kind == Collective.SCATTER;
        boolean toRoot = kind == Collective.REDUCE || kind == Collective.GATHER;
        PeerByteRanges all = PeerByteRanges.whole(call.countBytes());
        PeerByteRanges parts = PeerByteRanges.apart(call.countBytes(), call.strideBytes(), nRanks);
        give = between(call.root(), fromRoot, toRoot, call.sendOffset(1) > 0 ? parts : all);
        take = between(call.root(), toRoot, fromRoot, call.receiveOffset(1) > 0 ? parts : all);
        own = input + call.sendOffset(rank);
      }
    }
  }

  /**
   * Returns the bytes between this rank and its peers.
   *
   * @param isHere whether only the root has this end of the bytes
   * @param isThere whether only the root has the other end
   */
  private PeerByteRanges between(int root, boolean isHere, boolean isThere, PeerByteRanges ranges) {
    if (rank == root ? isThere : isHere) {
      return PeerByteRanges.NOTHING;
    }
    return isThere ? ranges.only(root) : ranges;
  }

  private static int peer(int peer) {
    return peer == CollectiveCall.NO_PEER ? Integer.MAX_VALUE : peer;
  }

  private void self(CollectiveCall call, long output) {
    boolean broadcastsFromHere = call.collective() == Collective.BROADCAST && rank == call.root();
    if (call.collective() != Collective.BROADCAST || broadcastsFromHere) {
      selfFrom = input + call.sendOffset(rank);
      selfTo = output + call.receiveOffset(rank);
      selfBytes =
          selfFrom == selfTo
              ? 0
              : Math.min(call.sendBytes(rank, rank), call.receiveBytes(rank, rank));
    }
  }

  /** Returns the most bytes that go to or come from any rank, this one included. */
  long most() {
    long most = selfBytes;
    for (int peer = 0; peer < nRanks; peer++) {
      most = Math.max(most, Math.max(give.bytes(peer), take.bytes(peer)));
      most = Math.max(most, Math.max(forward.bytes(peer), collect.bytes(peer)));
    }
    return most;
  }
}
