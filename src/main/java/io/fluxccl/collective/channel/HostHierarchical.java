package io.fluxccl.collective.channel;

import io.fluxccl.collective.Collective;
import io.fluxccl.device.host.HostMemory;
import io.fluxccl.device.host.HostReduction;
import java.util.EnumMap;
import java.util.Map;

/**
 * A collective over hosts of equally many ranks, on the host device, as one lane does it: inside a
 * host through mapped memory, between hosts along the rails. Every rank takes the same steps; in
 * each it sends a piece or two to a peer and receives those that were sent some steps before.
 */
abstract class HostHierarchical {
  final HostLane lane;
  final Hierarchy hierarchy;
  final int[] local;
  final int[] rail;

  /** This rank's place on its host. */
  final int me;

  final int host;
  HierarchicalCall what;
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

  /** All of them, for one lane. */
  static Map<Collective, HostHierarchical> all(HostLane lane, Hierarchy hierarchy) {
    Map<Collective, HostHierarchical> all = new EnumMap<>(Collective.class);
    all.put(Collective.ALL_REDUCE, new HierarchicalAllReduce(lane, hierarchy));
    all.put(Collective.ALL_GATHER, new HierarchicalAllGather(lane, hierarchy));
    all.put(Collective.REDUCE_SCATTER, new HierarchicalReduceScatter(lane, hierarchy));
    all.put(Collective.ALL_TO_ALL, new HierarchicalAllToAll(lane, hierarchy));
    all.put(Collective.BROADCAST, new HierarchicalBroadcast(lane, hierarchy));
    all.put(Collective.REDUCE, new HierarchicalReduce(lane, hierarchy));
    return all;
  }

  /** Runs it; ends early if the communicator is aborted. */
  final void run(HierarchicalCall call, HostReduction with) {
    what = call;
    reduction = with;
    long steps = begin();
    for (long step = 0; step < steps; step++) {
      if (!step(step)) {
        return;
      }
    }
  }

  /** Makes ready for {@link #what}; gives how many steps there are. */
  abstract long begin();

  /** False if the communicator was aborted. */
  abstract boolean step(long step);

  /** Cuts this lane's share of so many bytes into pieces of at most so many; gives how many. */
  final long cut(long bytes, long most) {
    cutBegin = lane.layout.begin(bytes, lane.lane);
    cutEnd = lane.layout.end(bytes, lane.lane);
    piece = Math.min(most, lane.layout.piece(cutEnd - cutBegin));
    return (cutEnd - cutBegin + piece - 1) / piece;
  }

  final long at(long number) {
    return cutBegin + number * piece;
  }

  /** Bytes of a piece of what is as long as was cut, or shorter; 0 or less: there is none. */
  final long length(long number, long bytes) {
    return number < 0 ? 0 : Math.min(piece, Math.min(cutEnd, bytes) - at(number));
  }

  /** The place so many behind this rank's own. */
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

  /** The slots of all of these ranks but one, as the first targets; gives how many, or -1. */
  final int claim(int[] ranks, int but) {
    int targets = 0;
    for (int i = 1; i < ranks.length; i++) {
      long slot = lane.pipes[ranks[(but + i) % ranks.length]].claim();
      if (slot == 0) {
        return -1;
      }
      lane.targets[targets++] = slot;
    }
    return targets;
  }

  final void publish(int[] ranks, int but, long bytes) {
    for (int i = 1; i < ranks.length; i++) {
      lane.pipes[ranks[(but + i) % ranks.length]].publish(bytes);
    }
  }

  /** A piece of each of these ranks as the sources, the own one from an address. */
  final boolean take(int[] ranks, int own, long from) {
    for (int i = 0; i < ranks.length; i++) {
      lane.sources[i] = i == own ? from : lane.pipes[ranks[i]].take();
      if (lane.sources[i] == 0) {
        return false;
      }
    }
    return true;
  }

  final void release(int[] ranks, int but) {
    for (int i = 1; i < ranks.length; i++) {
      lane.pipes[ranks[(but + i) % ranks.length]].release();
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
