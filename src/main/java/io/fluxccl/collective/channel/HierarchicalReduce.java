package io.fluxccl.collective.channel;

import static io.fluxccl.collective.channel.PipeLayout.DEPTH;

/**
 * Reduce by hosts, a broadcast the other way: the ranks of a host share the buffer out, each
 * combines its part of it, with what comes along its rail from the host that is one further from
 * the root's, and sends it one nearer; on the root's host the parts go to the root.
 *
 * <pre>
 *   step t    give piece t of each part to the local rank that looks after it
 *             combine piece t - DEPTH of the own part, send it nearer to the root
 *             root: take piece t - 2 DEPTH of the others' parts
 * </pre>
 *
 * <p>In local rank order, then what comes from further away; 16-bit values are rounded between.
 */
final class HierarchicalReduce extends HostHierarchical {
  private long pieces;
  private boolean isRoot;

  /** Who has this rank's part one further from the root, and one nearer; -1: nobody. */
  private int further;

  private int nearer;
  private int divisor;

  HierarchicalReduce(HostLane lane, Hierarchy hierarchy) {
    super(lane, hierarchy);
  }

  @Override
  long begin() {
    int distance = Math.floorMod(host - hierarchy.hostOf(what.root()), rail.length);
    isRoot = lane.rank == what.root();
    further = distance == rail.length - 1 ? -1 : rail[otherHost(1)];
    nearer = distance > 0 ? rail[otherHost(rail.length - 1)] : isRoot ? -1 : what.root();
    divisor = distance == 0 ? lane.nRanks : 1;
    pieces = cut(what.stride(), lane.layout.slotBytes());
    return pieces == 0 ? 0 : pieces + 2 * DEPTH;
  }

  private long bytes(int part, long number) {
    return number < pieces ? length(number, what.bytes(part)) : 0;
  }

  private long offset(int part, long number) {
    return what.begin(part) + at(number);
  }

  @Override
  boolean step(long step) {
    return give(step) && combine(step - DEPTH) && (!isRoot || collect(step - 2 * DEPTH));
  }

  private boolean give(long number) {
    for (int i = 1; i < local.length; i++) {
      int part = localPart(i);
      long bytes = bytes(part, number);
      if (bytes > 0 && !copyTo(local[part], what.input() + offset(part, number), bytes)) {
        return false;
      }
    }
    return true;
  }

  private boolean combine(long number) {
    long bytes = bytes(me, number);
    if (bytes <= 0) {
      return true;
    }
    long offset = offset(me, number);
    if (!take(local, me, what.input() + offset)) {
      return false;
    }
    int sources = local.length;
    if (further >= 0) {
      lane.sources[sources] = lane.pipes[further].take();
      if (lane.sources[sources++] == 0) {
        return false;
      }
    }
    lane.targets[0] = nearer < 0 ? what.output() + offset : lane.pipes[nearer].claim();
    if (lane.targets[0] == 0) {
      return false;
    }
    reduce(sources, 1, bytes, divisor);
    if (nearer >= 0) {
      lane.pipes[nearer].publish(bytes);
    }
    release(local, me);
    if (further >= 0) {
      lane.pipes[further].release();
    }
    return true;
  }

  private boolean collect(long number) {
    for (int i = 1; i < local.length; i++) {
      int part = localPart(local.length - i);
      long bytes = bytes(part, number);
      if (bytes > 0 && !copyFrom(local[part], what.output() + offset(part, number), bytes)) {
        return false;
      }
    }
    return true;
  }
}
