package io.fluxccl.collective.channel;

/**
 * Reduce-scatter by hosts: the shares of a rail's ranks are combined over the ranks of each host by
 * the one that is on the rail; what comes out goes along the rail to whose share it is, who
 * combines it over the hosts.
 *
 * <p>In local rank order, then in host order; 16-bit values are rounded between.
 */
final class HierarchicalReduceScatter extends RailRounds {
  HierarchicalReduceScatter(HostLane lane, Hierarchy hierarchy) {
    super(lane, hierarchy);
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
    long bytes = length(number, what.size());
    if (!take(local, me, what.inputOf(rail[partner]) + at(number))) {
      return false;
    }
    // In place the own share is read and written together.
    lane.targets[0] =
        partner == host ? what.output() + at(number) : lane.pipes[rail[partner]].claim();
    if (lane.targets[0] == 0) {
      return false;
    }
    reduce(local.length, 1, bytes, 1);
    if (partner != host) {
      lane.pipes[rail[partner]].publish(bytes);
    }
    release(local, me);
    return true;
  }

  @Override
  boolean finish(long number, int partner, boolean isLast) {
    if (!isLast) {
      return true;
    }
    long to = what.output() + at(number);
    if (!take(rail, host, to)) {
      return false;
    }
    lane.targets[0] = to;
    reduce(rail.length, 1, length(number, what.size()), lane.nRanks);
    release(rail, host);
    return true;
  }
}
