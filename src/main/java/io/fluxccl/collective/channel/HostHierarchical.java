// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.channel;

import io.fluxccl.collective.pipe.PipeGroup;
import io.fluxccl.device.host.HostReduction;

/**
 * A collective over hosts of equally many ranks, on the host device, as one lane runs it: through
 * mapped memory on a host, along the rails between hosts. Every rank takes the same steps. In each
 * it sends at most two pieces to a peer, and receives pieces that were sent some steps before.
 */
abstract class HostHierarchical {
  final HostPipeWorker lane;
  final Hierarchy hierarchy;
  final int[] local;
  final int[] rail;

  /** The pipes to this host's ranks. */
  final PipeGroup locals;

  /** The pipes along the rail. */
  final PipeGroup rails;

  /** This rank's place on its host. */
  final int me;

  final int host;
  PartitionPlan what;

  /** Number of pieces, as the latest {@link #cut} returned it. */
  long pieces;

  private HostReduction reduction;
  private long cutBegin;
  private long cutEnd;
  private long piece;

  HostHierarchical(HostPipeWorker lane, Hierarchy hierarchy) {
    this.lane = lane;
    this.hierarchy = hierarchy;
    this.local = hierarchy.local();
    this.rail = hierarchy.rail();
    this.locals = lane.group(local);
    this.rails = lane.group(rail);
    this.me = hierarchy.localIndex();
    this.host = hierarchy.railIndex();
  }

  /** Runs a call; returns early if the communicator is aborted. */
  final void run(PartitionPlan call, HostReduction with) {
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

  /**
   * Cuts this lane's share of {@code bytes} into pieces of at most {@code most} bytes; returns
   * their number.
   */
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

  /** Returns the place on this host at a cyclic distance after this rank's own. */
  final int localPart(int distance) {
    return (me + distance) % local.length;
  }

  final int otherHost(int distance) {
    return (host + distance) % rail.length;
  }

  final boolean copyToLocals(long from, long bytes) {
    for (int i = 1; i < local.length; i++) {
      if (!lane.pipes[local[localPart(i)]].send(from, bytes)) {
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
      if (bytes > 0
          && !lane.pipes[local[part]].send(what.input() + partOffset(part, number), bytes)) {
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
      if (bytes > 0
          && !lane.pipes[local[part]].receive(what.output() + partOffset(part, number), bytes)) {
        return false;
      }
    }
    return true;
  }

  /** Combines the first sources, in their order, into the first targets. */
  final void reduce(int sources, int targets, long bytes, int divisor) {
    lane.reduce(reduction, what.type(), what.op(), sources, targets, bytes, divisor);
  }

  /** Puts the piece's addresses in the local ranks' outputs into the targets; returns how many. */
  final int outputs(long step) {
    for (int i = 1; i < local.length; i++) {
      lane.targets[i - 1] = what.outputs()[localPart(i)] + partOffset(me, step);
    }
    return local.length - 1;
  }
}
