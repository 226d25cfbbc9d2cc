package io.fluxccl.collective.channel;

import static io.fluxccl.collective.channel.PipeLayout.DEPTH;
import static io.fluxccl.collective.channel.PipeLayout.SINGLE_DEPTH;

import io.fluxccl.device.host.HostMemory;

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
 * part back to all. Where two hosts or small pieces make that pointless, everybody gets all of it
 * at once; then only one piece a step goes along the rail, and may be longer on its way.
 *
 * <p>Where buffers are registered, local ranks read each other's input and write each other's
 * output. They meet at the beginning, when that may be done, and at the end, when it has been; none
 * waits for another's steps between.
 *
 * <p>Values are combined in local rank order, then in host order: all ranks get the same bits,
 * which may differ from those of all-pairs in how they were rounded.
 */
final class HierarchicalAllReduce extends HostHierarchical {
  /** More than SINGLE_DEPTH, so that a sum is used before its place is; a power of two. */
  private static final int PARTIALS = 16;

  /** Where the own sums of the latest pieces are, until those of the other hosts come. */
  private final long[] sums = new long[PARTIALS];

  private long pieces;
  private int onRail;
  private int behind;
  private boolean split;
  private boolean direct;

  HierarchicalAllReduce(HostLane lane, Hierarchy hierarchy) {
    super(lane, hierarchy);
  }

  @Override
  long begin() {
    split = hierarchy.isSplit(what.size());
    direct = what.isDirect();
    onRail = split ? DEPTH : SINGLE_DEPTH;
    // A piece is taken as many steps behind being given everywhere: that keeps the pipes' order.
    behind = split ? 2 * DEPTH : onRail;
    if (!direct) {
      behind += 2 * DEPTH;
    }
    pieces = cut(what.stride(), lane.layout.slotBytes());
    return pieces == 0 ? 0 : pieces + behind;
  }

  @Override
  boolean step(long step) {
    return direct ? stepDirectly(step) : stepByPieces(step);
  }

  private boolean stepByPieces(long step) {
    return giveLocally(step)
        && reduceLocally(step - DEPTH)
        && reduceHosts(step - DEPTH - onRail)
        && takeFromHosts(step - 3 * DEPTH)
        && takeLocally(step - behind);
  }

  private boolean stepDirectly(long step) {
    return (step > 0 || meetLocally())
        && reduceLocally(step)
        && reduceHosts(step - onRail)
        && takeFromHosts(step - 2 * DEPTH)
        && (step < pieces + behind - 1 || meetLocally());
  }

  /** Tells the local ranks that this one has come so far, and waits for them, by empty pieces. */
  private boolean meetLocally() {
    if (claim(local, me) < 0) {
      return false;
    }
    publish(local, me, 0);
    // No source is read: only that the pieces are there counts.
    if (!take(local, me, what.output())) {
      return false;
    }
    release(local, me);
    return true;
  }

  private boolean has(int part, long step) {
    return step < pieces && length(step, what.bytes(part)) > 0;
  }

  private long begin(int part, long step) {
    return what.begin(part) + at(step);
  }

  private long length(int part, long step) {
    return length(step, what.bytes(part));
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

  private boolean reduceLocally(long step) {
    if (!has(me, step)) {
      return true;
    }
    long begin = begin(me, step);
    long bytes = length(me, step);
    if (direct) {
      for (int i = 0; i < local.length; i++) {
        lane.sources[i] = what.inputs()[i] + begin;
      }
    } else if (!take(local, me, what.input() + begin)) {
      return false;
    }
    boolean sent = split ? reduceParts(what.output() + begin, bytes) : reduceToAll(step, bytes);
    if (!direct) {
      release(local, me);
    }
    return sent;
  }

  /** This host's part to the output, and each other's to that host. */
  private boolean reduceParts(long to, long bytes) {
    long stride = hierarchy.stride(bytes);
    for (int i = 0; i < rail.length; i++) {
      int part = otherHost(i);
      long offset = Math.min(bytes, part * stride);
      long length = Math.min(stride, bytes - offset);
      if (length == 0) {
        continue;
      }
      lane.targets[0] = i == 0 ? to + offset : lane.pipes[rail[part]].claim();
      if (lane.targets[0] == 0) {
        return false;
      }
      moveSources(offset);
      reduce(local.length, 1, length, 1);
      moveSources(-offset);
      if (i > 0) {
        lane.pipes[rail[part]].publish(length);
      }
    }
    return true;
  }

  private void moveSources(long offset) {
    for (int i = 0; i < local.length; i++) {
      lane.sources[i] += offset;
    }
  }

  /** All of it to all hosts. The output needs it not: it stays in what was sent. */
  private boolean reduceToAll(long step, long bytes) {
    int targets = claim(rail, host);
    if (targets < 0) {
      return false;
    }
    sums[(int) step & PARTIALS - 1] = lane.targets[0];
    reduce(local.length, targets, bytes, 1);
    publish(rail, host, bytes);
    return true;
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
    if (!take(rail, host, split ? mine : sums[(int) step & PARTIALS - 1])) {
      return false;
    }
    // What is not split is done with that, and may go to the local ranks.
    int targets = split ? claim(rail, host) : direct ? outputs(step) : claim(local, me);
    if (targets < 0) {
      return false;
    }
    lane.targets[targets++] = mine;
    reduce(rail.length, targets, length, lane.nRanks);
    if (split) {
      publish(rail, host, length);
    } else if (!direct) {
      publish(local, me, length);
    }
    release(rail, host);
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
    if (!direct) {
      return copyToLocals(to, bytes);
    }
    int targets = outputs(step);
    for (int i = 0; i < targets; i++) {
      HostMemory.copy(lane.targets[i], to, bytes);
    }
    return true;
  }

  /** Where a piece goes in the other local ranks' outputs, as the first targets; how many. */
  private int outputs(long step) {
    for (int i = 1; i < local.length; i++) {
      lane.targets[i - 1] = what.outputs()[localPart(i)] + begin(me, step);
    }
    return local.length - 1;
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
