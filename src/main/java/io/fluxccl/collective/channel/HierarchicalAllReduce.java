// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.channel;

import static io.fluxccl.collective.channel.PipeLayout.DEPTH;
import static io.fluxccl.collective.channel.PipeLayout.SINGLE_DEPTH;

import io.fluxccl.collective.pipe.PipeGroup;
import io.fluxccl.device.host.HostMemory;

/**
 * All-reduce over hosts of equally many ranks. The ranks of a host divide the buffer into parts.
 * Each handles its part together with the ranks that have the same part on the other hosts. So
 * hosts exchange no more bytes than if each host were one rank. Each step handles a piece of every
 * part:
 *
 * <pre>
 *   step t    send piece t of each part to the local rank that handles the part
 *             reduce piece t - DEPTH of the own part over the local ranks, send it along the rail
 *             reduce piece t - 2 DEPTH over the hosts, send it along the rail
 *             receive piece t - 3 DEPTH from the rail, send it to the local ranks
 *             receive piece t - 4 DEPTH of the other parts from the local ranks
 * </pre>
 *
 * <p>A split piece goes along the rail twice: each host's part of it to that host, then the reduced
 * parts to all hosts. With two hosts, or small pieces, each host sends the whole piece to all hosts
 * at once. Then at most one piece a step goes along the rail, and may be in flight for longer.
 *
 * <p>On registered buffers, local ranks read each other's input and write each other's output. They
 * pass a barrier at the beginning and at the end, and don't wait for each other's steps between.
 *
 * <p>Values are combined in local rank order, then in host order. All ranks get the same bits,
 * which may be rounded otherwise than those of all-pairs.
 */
final class HierarchicalAllReduce extends HostHierarchical {
  /** More than SINGLE_DEPTH, so that no sum is overwritten before its use; a power of two. */
  private static final int PARTIALS = 16;

  /** Addresses of this host's sums of the latest pieces, until the other hosts' sums arrive. */
  private final long[] sums = new long[PARTIALS];

  private int onRail;
  private int behind;
  private boolean split;
  private boolean direct;

  HierarchicalAllReduce(HostPipeWorker lane, Hierarchy hierarchy) {
    super(lane, hierarchy);
  }

  @Override
  long begin() {
    split = hierarchy.isSplit(what.size());
    direct = what.isDirect();
    onRail = split ? DEPTH : SINGLE_DEPTH;
    // Equal distances between sending and receiving a piece keep the order in the pipes.
    behind = split ? 2 * DEPTH : onRail;
    if (!direct) {
      behind += 2 * DEPTH;
    }
    cut(what.stride(), lane.layout.slotBytes());
    return pieces == 0 ? 0 : pieces + behind;
  }

  @Override
  boolean step(long step) {
    return direct ? stepDirectly(step) : stepByPieces(step);
  }

  private boolean stepByPieces(long step) {
    return sendParts(step)
        && reduceLocally(step - DEPTH)
        && reduceHosts(step - DEPTH - onRail)
        && takeFromHosts(step - 3 * DEPTH)
        && receiveParts(step - behind);
  }

  private boolean stepDirectly(long step) {
    return (step > 0 || locals.barrier())
        && reduceLocally(step)
        && reduceHosts(step - onRail)
        && takeFromHosts(step - 2 * DEPTH)
        && (step < pieces + behind - 1 || locals.barrier());
  }

  private boolean reduceLocally(long step) {
    if (partBytes(me, step) <= 0) {
      return true;
    }
    long begin = partOffset(me, step);
    long bytes = partBytes(me, step);
    if (direct) {
      for (int i = 0; i < local.length; i++) {
        lane.sources[i] = what.inputs()[i] + begin;
      }
    } else if (!locals.take(lane.sources, what.input() + begin)) {
      return false;
    }
    boolean sent = split ? reduceParts(what.output() + begin, bytes) : reduceToAll(step, bytes);
    if (!direct) {
      locals.release();
    }
    return sent;
  }

  /** Reduces this host's part to the output, and each other host's part to that host. */
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

  /** Reduces the whole piece to all hosts; this host keeps its sum in a slot, not the output. */
  private boolean reduceToAll(long step, long bytes) {
    int targets = rails.claim(lane.targets, PipeGroup.ALL);
    if (targets < 0) {
      return false;
    }
    sums[(int) step & PARTIALS - 1] = lane.targets[0];
    reduce(local.length, targets, bytes, 1);
    rails.publish(bytes, PipeGroup.ALL);
    return true;
  }

  private boolean reduceHosts(long step) {
    if (partBytes(me, step) <= 0) {
      return true;
    }
    long bytes = partBytes(me, step);
    long stride = split ? hierarchy.stride(bytes) : bytes;
    long offset = split ? Math.min(bytes, host * stride) : 0;
    long length = Math.min(stride, bytes - offset);
    if (length == 0) {
      return true;
    }
    long mine = what.output() + partOffset(me, step) + offset;
    if (!rails.take(lane.sources, split ? mine : sums[(int) step & PARTIALS - 1])) {
      return false;
    }
    // A piece that is not split is complete now, and goes to the local ranks.
    int targets =
        split
            ? rails.claim(lane.targets, PipeGroup.ALL)
            : direct ? outputs(step) : locals.claim(lane.targets, PipeGroup.ALL);
    if (targets < 0) {
      return false;
    }
    lane.targets[targets++] = mine;
    reduce(rail.length, targets, length, lane.nRanks);
    if (split) {
      rails.publish(length, PipeGroup.ALL);
    } else if (!direct) {
      locals.publish(length, PipeGroup.ALL);
    }
    rails.release();
    return true;
  }

  private boolean takeFromHosts(long step) {
    if (!split || partBytes(me, step) <= 0) {
      return true;
    }
    long bytes = partBytes(me, step);
    long stride = hierarchy.stride(bytes);
    long to = what.output() + partOffset(me, step);
    for (int i = 1; i < rail.length; i++) {
      int part = otherHost(rail.length - i);
      long offset = Math.min(bytes, part * stride);
      long length = Math.min(stride, bytes - offset);
      if (length > 0 && !lane.pipes[rail[part]].receive(to + offset, length)) {
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
}
