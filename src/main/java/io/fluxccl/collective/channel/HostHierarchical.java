package io.fluxccl.collective.channel;

import static io.fluxccl.collective.channel.PipeLayout.DEPTH;

import io.fluxccl.device.host.HostMemory;
import io.fluxccl.device.host.HostReduction;

/**
 * All-reduce over hosts of equally many ranks, on the host device, as one lane does it. The ranks
 * of a host share the buffer out; each looks after its part of it together with the ranks that have
 * the same part on the other hosts, so that between hosts go no more bytes than if each host were
 * one rank. Step by step, in each of them a piece of every part:
 *
 * <pre>
 *   step t    give piece t of each part to the local rank that looks after it
 *             reduce piece t - DEPTH of the own part over the local ranks, send it along the rail
 *             reduce piece t - 2 DEPTH over the hosts, send it along the rail
 *             take piece t - 3 DEPTH from the rail, give it to the local ranks
 *             take piece t - 4 DEPTH of the others' parts from the local ranks
 * </pre>
 *
 * <p>Along the rail goes first each host's part of the piece, to that host, and then the reduced
 * part back to all; where two hosts or small pieces make that pointless, everybody gets all of it
 * at once.
 *
 * <p>Values are combined in local rank order, then in host order: all ranks get the same bits,
 * which may differ from those of all-pairs in how they were rounded.
 */
final class HostHierarchical {
  private final HostLane lane;
  private final Hierarchy hierarchy;
  private final int[] local;
  private final int[] rail;
  private final int me;
  private final int host;
  private Reduction what;
  private HostReduction reduction;
  private boolean split;

  HostHierarchical(HostLane lane, Hierarchy hierarchy) {
    this.lane = lane;
    this.hierarchy = hierarchy;
    this.local = hierarchy.local();
    this.rail = hierarchy.rail();
    this.me = hierarchy.localIndex();
    this.host = hierarchy.railIndex();
  }

  void run(Reduction reduce, HostReduction with) {
    what = reduce;
    reduction = with;
    split = hierarchy.isSplit(what.stride());
    // A piece is taken as many steps behind being given everywhere: that keeps the pipes' order.
    int behind = split ? 4 * DEPTH : 3 * DEPTH;
    // A shorter part may be shared by fewer lanes, which then have more of it.
    long most = 0;
    for (int part = 0; part < local.length; part++) {
      most = Math.max(most, lane.pieces(what.bytes(part)));
    }
    long steps = most + behind;
    for (long step = 0; step < steps; step++) {
      if (!giveLocally(step)
          || !reduceLocally(step - DEPTH)
          || !reduceHosts(step - 2 * DEPTH)
          || !takeFromHosts(step - 3 * DEPTH)
          || !takeLocally(step - behind)) {
        return;
      }
    }
  }

  private boolean has(int part, long step) {
    return step >= 0 && step < lane.pieces(what.bytes(part));
  }

  private long begin(int part, long step) {
    return what.begin(part) + lane.pieceBegin(what.bytes(part), step);
  }

  private long length(int part, long step) {
    return lane.pieceBytes(what.bytes(part), step);
  }

  private int localPart(int distance) {
    return (me + distance) % local.length;
  }

  private int otherHost(int distance) {
    return (host + distance) % rail.length;
  }

  private boolean giveLocally(long step) {
    for (int i = 1; i < local.length; i++) {
      int part = localPart(i);
      if (has(part, step)
          && !copyTo(local[part], what.input() + begin(part, step), length(part, step))) {
        return false;
      }
    }
    return true;
  }

  private boolean copyTo(int rank, long from, long bytes) {
    Pipe pipe = lane.pipes[rank];
    long slot = pipe.claim();
    if (slot == 0) {
      return false;
    }
    HostMemory.copy(slot, from, bytes);
    pipe.publish(bytes);
    return true;
  }

  private boolean reduceLocally(long step) {
    if (!has(me, step)) {
      return true;
    }
    long begin = begin(me, step);
    long bytes = length(me, step);
    for (int i = 0; i < local.length; i++) {
      lane.sources[i] = i == me ? what.input() + begin : lane.pipes[local[i]].take();
      if (lane.sources[i] == 0) {
        return false;
      }
    }
    boolean sent =
        split
            ? reduceParts(what.output() + begin, bytes)
            : reduceToAll(what.output() + begin, bytes);
    for (int i = 1; i < local.length; i++) {
      lane.pipes[local[localPart(i)]].release();
    }
    return sent;
  }

  /** Each host's part to the output, and to that host. */
  private boolean reduceParts(long to, long bytes) {
    long stride = hierarchy.stride(bytes);
    for (int i = 0; i < rail.length; i++) {
      int part = otherHost(i);
      long offset = Math.min(bytes, part * stride);
      long length = Math.min(stride, bytes - offset);
      if (length == 0) {
        continue;
      }
      int targets = 0;
      lane.targets[targets++] = to + offset;
      if (i > 0) {
        lane.targets[targets] = lane.pipes[rail[part]].claim();
        if (lane.targets[targets++] == 0) {
          return false;
        }
      }
      reduce(local.length, offset, targets, length, 1);
      if (i > 0) {
        lane.pipes[rail[part]].publish(length);
      }
    }
    return true;
  }

  /** All of it to the output and to all hosts. */
  private boolean reduceToAll(long to, long bytes) {
    int targets = claim(rail, host);
    if (targets < 0) {
      return false;
    }
    lane.targets[targets++] = to;
    reduce(local.length, 0, targets, bytes, 1);
    publish(rail, host, bytes);
    return true;
  }

  /** The slots of all of these ranks but one, as the first targets; gives how many, or -1. */
  private int claim(int[] ranks, int but) {
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

  private void publish(int[] ranks, int but, long bytes) {
    for (int i = 1; i < ranks.length; i++) {
      lane.pipes[ranks[(but + i) % ranks.length]].publish(bytes);
    }
  }

  private void reduce(int sources, long offset, int targets, long bytes, int divisor) {
    if (offset > 0) {
      for (int i = 0; i < sources; i++) {
        lane.sources[i] += offset;
      }
    }
    reduction.reduce(
        what.type(),
        what.op(),
        lane.sources,
        sources,
        lane.targets,
        targets,
        bytes / what.type().size(),
        divisor);
    if (offset > 0) {
      for (int i = 0; i < sources; i++) {
        lane.sources[i] -= offset;
      }
    }
  }

  private boolean reduceHosts(long step) {
    if (!has(me, step)) {
      return true;
    }
    long bytes = length(me, step);
    long stride = split ? hierarchy.stride(bytes) : bytes;
    long offset = split ? Math.min(bytes, host * stride) : 0;
    long length = Math.min(stride, bytes - offset);
    if (length == 0) {
      return true;
    }
    long mine = what.output() + begin(me, step) + offset;
    for (int i = 0; i < rail.length; i++) {
      lane.sources[i] = i == host ? mine : lane.pipes[rail[i]].take();
      if (lane.sources[i] == 0) {
        return false;
      }
    }
    // What is not split is done with that, and may go to the local ranks.
    int targets = split ? claim(rail, host) : claim(local, me);
    if (targets < 0) {
      return false;
    }
    lane.targets[targets++] = mine;
    reduce(rail.length, 0, targets, length, lane.nRanks);
    if (split) {
      publish(rail, host, length);
    } else {
      publish(local, me, length);
    }
    for (int i = 1; i < rail.length; i++) {
      lane.pipes[rail[otherHost(i)]].release();
    }
    return true;
  }

  private boolean takeFromHosts(long step) {
    if (!split || !has(me, step)) {
      return true;
    }
    long bytes = length(me, step);
    long stride = hierarchy.stride(bytes);
    long to = what.output() + begin(me, step);
    for (int i = 1; i < rail.length; i++) {
      int part = otherHost(rail.length - i);
      long offset = Math.min(bytes, part * stride);
      long length = Math.min(stride, bytes - offset);
      if (length > 0 && !copyFrom(rail[part], to + offset, length)) {
        return false;
      }
    }
    for (int i = 1; i < local.length; i++) {
      if (!copyTo(local[localPart(i)], to, bytes)) {
        return false;
      }
    }
    return true;
  }

  private boolean copyFrom(int rank, long to, long bytes) {
    Pipe pipe = lane.pipes[rank];
    long slot = pipe.take();
    if (slot == 0) {
      return false;
    }
    HostMemory.copy(to, slot, bytes);
    pipe.release();
    return true;
  }

  private boolean takeLocally(long step) {
    for (int i = 1; i < local.length; i++) {
      int part = localPart(local.length - i);
      if (has(part, step)
          && !copyFrom(local[part], what.output() + begin(part, step), length(part, step))) {
        return false;
      }
    }
    return true;
  }
}
