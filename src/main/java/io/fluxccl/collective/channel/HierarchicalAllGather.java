package io.fluxccl.collective.channel;

import io.fluxccl.device.host.HostMemory;

/**
 * All-gather by hosts: each rank's share goes along its rail, once to each host, and who gets it
 * there gives it to the other ranks of the host.
 */
final class HierarchicalAllGather extends RailRounds {
  HierarchicalAllGather(HostLane lane, Hierarchy hierarchy) {
    super(lane, hierarchy);
  }

  @Override
  boolean give(long number, int partner) {
    return partner == host
        || copyTo(rail[partner], what.input() + at(number), length(number, what.size()));
  }

  @Override
  boolean pass(long number, int partner) {
    long bytes = length(number, what.size());
    long from = what.input() + at(number);
    long to = what.outputOf(rail[partner]) + at(number);
    if (partner != host) {
      return copyFrom(rail[partner], to, bytes) && copyToLocals(to, bytes);
    }
    if (from != to) {
      HostMemory.copy(to, from, bytes);
    }
    return copyToLocals(from, bytes);
  }

  @Override
  boolean finish(long number, int partner, boolean isLast) {
    for (int i = 1; i < local.length; i++) {
      int place = localPart(local.length - i);
      long to = what.outputOf(hierarchy.rank(partner, place)) + at(number);
      if (!copyFrom(local[place], to, length(number, what.size()))) {
        return false;
      }
    }
    return true;
  }
}
