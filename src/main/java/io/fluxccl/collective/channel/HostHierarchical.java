package io.fluxccl.collective.channel;

import io.fluxccl.collective.Collective;
import io.fluxccl.collective.pipe.Pipe;
import io.fluxccl.device.host.HostMemory;
import io.fluxccl.device.host.HostReduction;
import java.util.EnumMap;
import java.util.Map;

/**
 * A collective over hosts of equally many ranks, on the host device, as one lane runs it: through
 * mapped memory on a host, along the rails between hosts. Every rank takes the same steps. In each
 * it sends at most two pieces to a peer, and receives pieces that were sent some steps before.
 */
abstract class HostHierarchical {
  final HostLane lane;
  final Hierarchy hierarchy;
  final int[] local;
  final int[] rail;

  /** This rank's place on its host. */
  final int me;

  final int host;
  PartsPlan what;

  /** Number of pieces, as the latest {@link #cut} returned it. */
  long pieces;

  private HostReduction reduction;
  private long cutBegin;
  private long cutEnd;
  private long piece;

  HostHierarchical(HostLane lane, Hierarchy hierarchy) {
    this.lane = lane;
    this.hierarchy = hierarchy;
    this.local = hierarchy.local();
    this.rail = hierarchy.rail();
    this.me = hierarchy.localIndex();
    this.host = hierarchy.railIndex();
  }

  /** Returns one lane's implementation of each collective. */
  static Map<Collective, HostHierarchical> all(HostLane lane, Hierarchy hierarchy) {
    HostHierarchical chain = new HierarchicalChain(lane, hierarchy);
    HostHierarchical rounds = new HierarchicalRounds(lane, hierarchy);
    return new EnumMap<>(
        Map.of(
            Collective.ALL_REDUCE,
            new HierarchicalAllReduce(lane, hierarchy),
            Collective.BROADCAST,
            chain,
            Collective.REDUCE,
            chain,
            Collective.ALL_GATHER,
            rounds,
            Collective.REDUCE_SCATTER,
            rounds,
            Collective.ALL_TO_ALL,
            rounds));
  }

  /** Runs a call; returns early if the communicator is aborted. */
  final void run(PartsPlan call, HostReduction with) {
    what = call;
    reduction = with;
    long steps = begin();
    for (long step = 0; step < steps; step++) {
      if (!step(step)) {
        return;
      }
    }
  }

  /** Prepares {@link #what}; returns the number of steps. */
  abstract long begin();

  /** Runs a step; returns false if the communicator was aborted. */
  abstract boolean step(long step);

  /** Cuts this lane's share of so many bytes into pieces of at most so many; returns how many. */
  final long cut(long bytes, long most) {
    cutBegin = lane.layout.begin(bytes, lane.lane);
    cutEnd = lane.layout.end(bytes, lane.lane);
    piece = Math.min(most, lane.layout.piece(cutEnd - cutBegin));
    pieces = (cutEnd - cutBegin + piece - 1) / piece;
    return pieces;
  }

  final long at(long number) {
    return cutBegin + number * piece;
  }

  /** Returns a piece's bytes, of a range no longer than was cut; 0 or less if there is none. */
  final long length(long number, long bytes) {
    return number < 0 ? 0 : Math.min(piece, Math.min(cutEnd, bytes) - at(number));
  }

  /** Returns a piece's bytes in a part; 0 or less if there is none. */
  final long partBytes(int part, long number) {
    return number < pieces ? length(number, what.bytes(part)) : 0;
  }

  /** Returns where a piece of a part begins in the buffer. */
  final long partOffset(int part, long number) {
    return what.begin(part) + at(number);
  }

  /** Returns the place so many behind this rank's own. */
  final int localPart(int distance) {
    return (me + distance) % local.length;
  }

  final int otherHost(int distance) {
    return (host + distance) % rail.length;
  }

  final boolean copyTo(int rank, long from, long bytes) {
    Pipe pipe = lane.pipes[rank];
    long slot = pipe.claim();
    if (slot == 0) {
      return false;
    }
    HostMemory.copy(slot, from, bytes);
    pipe.publish(bytes);
    return true;
  }

  final boolean copyFrom(int rank, long to, long bytes) {
    Pipe pipe = lane.pipes[rank];
    long slot = pipe.take();
    if (slot == 0) {
      return false;
    }
    HostMemory.copy(to, slot, bytes);
    pipe.release();
    return true;
  }

  final boolean copyToLocals(long from, long bytes) {
    for (int i = 1; i < local.length; i++) {
      if (!copyTo(local[localPart(i)], from, bytes)) {
        return false;
      }
    }
    return true;
  }

  /** Sends a piece of each part to the local rank that handles the part. */
  final boolean sendParts(long number) {
    for (int i = 1; i < local.length; i++) {
      int part = localPart(i);
      long bytes = partBytes(part, number);
      if (bytes > 0 && !copyTo(local[part], what.input() + partOffset(part, number), bytes)) {
        return false;
      }
    }
    return true;
  }

  /** Receives a piece of each other part from the local rank that handles the part. */
  final boolean receiveParts(long number) {
    for (int i = 1; i < local.length; i++) {
      int part = localPart(local.length - i);
      long bytes = partBytes(part, number);
      if (bytes > 0 && !copyFrom(local[part], what.output() + partOffset(part, number), bytes)) {
        return false;
      }
    }
    return true;
  }

  /** Claims a slot to each of these ranks but one, as the first targets; returns how many or -1. */
  final int claim(int[] ranks, int except) {
    int targets = 0;
    for (int i = 1; i < ranks.length; i++) {
      long slot = lane.pipes[ranks[(except + i) % ranks.length]].claim();
      if (slot == 0) {
        return -1;
      }
      lane.targets[targets++] = slot;
    }
    return targets;
  }

  final void publish(int[] ranks, int except, long bytes) {
    for (int i = 1; i < ranks.length; i++) {
      lane.pipes[ranks[(except + i) % ranks.length]].publish(bytes);
    }
  }

  /** Takes a piece of each of these ranks as the sources; the own one is at an address. */
  final boolean take(int[] ranks, int own, long from) {
    for (int i = 0; i < ranks.length; i++) {
      lane.sources[i] = i == own ? from : lane.pipes[ranks[i]].take();
      if (lane.sources[i] == 0) {
        return false;
      }
    }
    return true;
  }

  final void release(int[] ranks, int except) {
    for (int i = 1; i < ranks.length; i++) {
      lane.pipes[ranks[(except + i) % ranks.length]].release();
    }
  }

  /** Combines the first sources, in their order, into the first targets. */
  final void reduce(int sources, int targets, long bytes, int divisor) {
    reduction.reduce(
        what.type(),
        what.op(),
        lane.sources,
        sources,
        lane.targets,
        targets,
        bytes / what.type().size(),
        divisor);
  }
}
