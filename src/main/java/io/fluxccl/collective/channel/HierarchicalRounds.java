// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.channel;

import static io.fluxccl.collective.channel.PipeLayout.SINGLE_DEPTH;

import io.fluxccl.collective.Collective;
import io.fluxccl.collective.pipe.CacheLines;
import io.fluxccl.collective.pipe.Pipe;
import io.fluxccl.device.host.HostMemory;

/**
 * The collectives in which every rank has a share for every rank. Each piece takes a round for each
 * host, in which each host exchanges data with a partner, or with itself.
 *
 * <pre>
 *   step t    send what belongs to round t
 *             forward it, between hosts or locally, in round t - SINGLE_DEPTH
 *             finish it in round t - 2 SINGLE_DEPTH
 * </pre>
 *
 * <ul>
 *   <li>All-gather: each share goes along its rail, once to each host; the rank that receives it
 *       sends it to the other ranks of its host.
 *   <li>Reduce-scatter: the rank of a host on a share's rail combines the share over its host. It
 *       sends the result along the rail to the share's owner, which combines it over the hosts. The
 *       order is local rank order, then host order; 16-bit values are rounded between.
 *   <li>All-to-all: the shares of a host's ranks for a rank of another host are gathered by the
 *       rank on that rank's rail, and go there as one message. That sends the same bytes in fewer
 *       messages.
 * </ul>
 *
 * <p>In a round at most one piece goes through a pipe, hence {@link PipeLayout#SINGLE_DEPTH}.
 */
final class HierarchicalRounds extends HostHierarchical {
  private long rounds;

  HierarchicalRounds(HostPipeWorker lane, Hierarchy hierarchy) {
    super(lane, hierarchy);
  }

  @Override
  long begin() {
    rounds = cut(what.size(), mostBytes()) * rail.length;
    return rounds == 0 ? 0 : rounds + 2 * SINGLE_DEPTH;
  }

  private long mostBytes() {
    if (what.kind() != Collective.ALL_TO_ALL) {
      return lane.layout.slotBytes();
    }
    // A slot takes a piece of each rank of the host.
    long each = lane.layout.slotBytes() / local.length;
    return each < CacheLines.LENGTH ? each : each & -CacheLines.LENGTH;
  }

  @Override
  boolean step(long step) {
    long forwarded = step - SINGLE_DEPTH;
    long finished = step - 2 * SINGLE_DEPTH;
    return (!has(step) || send(number(step), partner(step)))
        && (!has(forwarded) || forward(number(forwarded), partner(forwarded)))
        && (!has(finished) || finish(finished));
  }

  private boolean has(long round) {
    return round >= 0 && round < rounds;
  }

  private long number(long round) {
    return round / rail.length;
  }

  private int partner(long round) {
    return Math.floorMod((int) (round % rail.length) - host, rail.length);
  }

  private long bytes(long number) {
    return length(number, what.size());
  }

  private boolean send(long number, int partner) {
    if (what.kind() == Collective.ALL_GATHER) {
      return partner == host
          || lane.pipes[rail[partner]].send(what.input() + at(number), bytes(number));
    }
    for (int i = 1; i < local.length; i++) {
      int place = localPart(i);
      long from = what.inputOf(hierarchy.rank(partner, place)) + at(number);
      if (!lane.pipes[local[place]].send(from, bytes(number))) {
        return false;
      }
    }
    return true;
  }

  private boolean forward(long number, int partner) {
    return switch (what.kind()) {
      case ALL_GATHER -> distribute(number, partner);
      case REDUCE_SCATTER -> combine(number, partner);
      default -> partner == host ? placeLocal(number) : gather(number, partner);
    };
  }

  private boolean finish(long round) {
    long number = number(round);
    int partner = partner(round);
    return switch (what.kind()) {
      case ALL_GATHER -> collect(number, partner);
      case REDUCE_SCATTER -> round % rail.length < rail.length - 1 || combineHosts(number);
      default -> partner == host || scatter(number, partner);
    };
  }

  /** All-gather: gives a host's share to the local ranks. */
  private boolean distribute(long number, int partner) {
    long bytes = bytes(number);
    long from = what.input() + at(number);
    long to = what.outputOf(rail[partner]) + at(number);
    if (partner != host) {
      return lane.pipes[rail[partner]].receive(to, bytes) && copyToLocals(to, bytes);
    }
    if (from != to) {
      HostMemory.copy(to, from, bytes);
    }
    return copyToLocals(from, bytes);
  }

  /** All-gather: receives the shares that the local ranks have got. */
  private boolean collect(long number, int partner) {
    for (int i = 1; i < local.length; i++) {
      int place = localPart(local.length - i);
      long to = what.outputOf(hierarchy.rank(partner, place)) + at(number);
      if (!lane.pipes[local[place]].receive(to, bytes(number))) {
        return false;
      }
    }
    return true;
  }

  /** Reduce-scatter: combines a share over the local ranks. */
  private boolean combine(long number, int partner) {
    if (!locals.take(lane.sources, what.inputOf(rail[partner]) + at(number))) {
      return false;
    }
    // In place, this rank's share is read and written at the same time.
    lane.targets[0] =
        partner == host ? what.output() + at(number) : lane.pipes[rail[partner]].claim();
    if (lane.targets[0] == 0) {
      return false;
    }
    reduce(local.length, 1, bytes(number), 1);
    if (partner != host) {
      lane.pipes[rail[partner]].publish(bytes(number));
    }
    locals.release();
    return true;
  }

  /** Reduce-scatter: combines this rank's share over the hosts. */
  private boolean combineHosts(long number) {
    long to = what.output() + at(number);
    if (!rails.take(lane.sources, to)) {
      return false;
    }
    lane.targets[0] = to;
    reduce(rail.length, 1, bytes(number), lane.nRanks);
    rails.release();
    return true;
  }

  /** All-to-all: places the data that the local ranks have sent to this rank. */
  private boolean placeLocal(long number) {
    long from = what.inputOf(lane.rank) + at(number);
    long to = what.outputOf(lane.rank) + at(number);
    if (from != to) {
      HostMemory.copy(to, from, bytes(number));
    }
    for (int i = 1; i < local.length; i++) {
      int peer = local[localPart(local.length - i)];
      if (!lane.pipes[peer].receive(what.outputOf(peer) + at(number), bytes(number))) {
        return false;
      }
    }
    return true;
  }

  /** All-to-all: gathers the local ranks' shares for a rank of the partner into one message. */
  private boolean gather(long number, int partner) {
    long bytes = bytes(number);
    Pipe out = lane.pipes[rail[partner]];
    long slot = out.claim();
    if (slot == 0) {
      return false;
    }
    HostMemory.copy(slot + me * bytes, what.inputOf(rail[partner]) + at(number), bytes);
    for (int i = 1; i < local.length; i++) {
      int place = localPart(local.length - i);
      if (!lane.pipes[local[place]].receive(slot + place * bytes, bytes)) {
        return false;
      }
    }
    out.publish(local.length * bytes);
    return true;
  }

  /** All-to-all: places the partner's message; in place, over data that was already sent. */
  private boolean scatter(long number, int partner) {
    long bytes = bytes(number);
    Pipe in = lane.pipes[rail[partner]];
    long slot = in.take();
    if (slot == 0) {
      return false;
    }
    for (int place = 0; place < local.length; place++) {
      long to = what.outputOf(hierarchy.rank(partner, place)) + at(number);
      HostMemory.copy(to, slot + place * bytes, bytes);
    }
    in.release();
    return true;
  }
}
