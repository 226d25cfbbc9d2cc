package io.fluxccl.collective.channel;

import io.fluxccl.device.host.HostMemory;

/**
 * All-to-all by hosts: what the ranks of a host have for a rank of another one is gathered by who
 * is on that rank's rail, and goes there as one message. So many bytes as without, in fewer
 * messages.
 */
final class HierarchicalAllToAll extends RailRounds {
  private static final long LINE = 64;

  HierarchicalAllToAll(HostLane lane, Hierarchy hierarchy) {
    super(lane, hierarchy);
  }

  /** A slot takes a piece of each rank of the host. */
  @Override
  long mostBytes() {
    long each = lane.layout.slotBytes() / local.length;
    return each < LINE ? each : each & -LINE;
  }

  @Override
  boolean give(long number, int partner) {
    for (int i = 1; i < local.length; i++) {
      int place = localPart(i);
      long from = what.inputOf(hierarchy.rank(partner, place)) + at(number);
      if (!copyTo(local[place], from, length(number, what.size()))) {
        return false;
      }
    }
    return true;
  }

  @Override
  boolean pass(long number, int partner) {
    return partner == host ? placeLocal(number) : gather(number, partner);
  }

  private boolean placeLocal(long number) {
    long bytes = length(number, what.size());
    long from = what.inputOf(lane.rank) + at(number);
    long to = what.outputOf(lane.rank) + at(number);
    if (from != to) {
      HostMemory.copy(to, from, bytes);
    }
    for (int i = 1; i < local.length; i++) {
      int peer = local[localPart(local.length - i)];
      if (!copyFrom(peer, what.outputOf(peer) + at(number), bytes)) {
        return false;
      }
    }
    return true;
  }

  private boolean gather(long number, int partner) {
    long bytes = length(number, what.size());
    Pipe out = lane.pipes[rail[partner]];
    long slot = out.claim();
    if (slot == 0) {
      return false;
    }
    HostMemory.copy(slot + me * bytes, what.inputOf(rail[partner]) + at(number), bytes);
    for (int i = 1; i < local.length; i++) {
      int place = localPart(local.length - i);
      if (!copyFrom(local[place], slot + place * bytes, bytes)) {
        return false;
      }
    }
    out.publish(local.length * bytes);
    return true;
  }

  /** In place that overwrites what {@link #give} and {@link #gather} have sent by now. */
  @Override
  boolean finish(long number, int partner, boolean isLast) {
    if (partner == host) {
      return true;
    }
    long bytes = length(number, what.size());
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
