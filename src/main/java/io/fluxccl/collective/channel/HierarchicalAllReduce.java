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
 * output, and the pieces between them are empty: the one that is given says that the input may be
 * read and the output written, the one that comes back that this has been done.
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
    behind = split ? 4 * DEPTH : 2 * DEPTH + onRail;
    pieces = cut(what.stride(), lane.layout.slotBytes());
    return pieces == 0 ? 0 : pieces + behind;
  }

  @Override
  boolean step(long step) {
    return giveLocally(step)
        && reduceLocally(step - DEPTH)
        && reduceHosts(step - DEPTH - onRail)
        && takeFromHosts(step - 3 * DEPTH)
        && takeLocally(step - behind);
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
          && !(direct
              ? tell(local[part])
              : copyTo(local[part], what.input() + begin(part, step), length(part, step)))) {
        return false;
      }
    }
    return true;
  }

  /** Sends an empty piece: what it stands for is where the receiver finds it, or has been put. */
  private boolean tell(int rank) {
    Pipe pipe = lane.pipes[rank];
    if (pipe.claim() == 0) {
      return false;
    }
    pipe.publish(0);
    return true;
  }

  private boolean reduceLocally(long step) {
    if (!has(me, step)) {
      return true;
    }
    long begin = begin(me, step);
    long bytes = length(me, step);
    if (!take(local, me, what.input() + begin)) {
      return false;
    }
    if (direct) {
      for (int i = 0; i < local.length; i++) {
        lane.sources[i] = what.inputs()[i] + begin;
      }
    }
    boolean sent = split ? reduceParts(what.output() + begin, bytes) : reduceToAll(step, bytes);
    release(local, me);
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
    int targets = split ? claim(rail, host) : claim(local, me);
    if (targets < 0) {
      return false;
    }
    if (direct && !split) {
      targets = 0;
      for (int i = 1; i < local.length; i++) {
        lane.targets[targets++] = what.outputs()[localPart(i)] + begin(me, step);
      }
    }
    lane.targets[targets++] = mine;
    reduce(rail.length, targets, length, lane.nRanks);
    if (split) {
      publish(rail, host, length);
    } else {
      publish(local, me, direct ? 0 : length);
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
    return direct ? putToLocals(to, begin(me, step), bytes) : copyToLocals(to, bytes);
  }

  /** Straight into the local ranks' outputs, each of which has told that it is here. */
  private boolean putToLocals(long from, long begin, long bytes) {
    for (int i = 1; i < local.length; i++) {
      int place = localPart(i);
      HostMemory.copy(what.outputs()[place] + begin, from, bytes);
      if (!tell(local[place])) {
        return false;
      }
    }
    return true;
  }

  private boolean takeLocally(long step) {
    for (int i = 1; i < local.length; i++) {
      int part = localPart(local.length - i);
      if (has(part, step)
          && !(direct
              ? hear(local[part])
              : copyFrom(local[part], what.output() + begin(part, step), length(part, step)))) {
        return false;
      }
    }
    return true;
  }

  private boolean hear(int rank) {
    Pipe pipe = lane.pipes[rank];
    if (pipe.take() == 0) {
      return false;
    }
    pipe.release();
    return true;
  }
}
