package io.fluxccl.collective.channel;

import static io.fluxccl.collective.channel.PipeLayout.DEPTH;

import io.fluxccl.device.host.HostMemory;

/**
 * Broadcast by hosts: the root gives each rank of its host a part; parts go along the rails from
 * host to host, in a chain that begins at the root's, and on each host from rank to rank. So every
 * link between hosts carries the buffer once.
 *
 * <pre>
 *   step t    root:     give each local rank piece t of its part
 *                       hand piece t - DEPTH of its own on
 *             others:   take piece t of the own part, from the root or the host before, hand it on
 *                       take piece t - DEPTH of the others' parts from the local ranks
 * </pre>
 *
 * <p>To hand on is to give to the next host, and to the local ranks but the root. Ranks behind the
 * root's on its rail wait for later steps of the root than their own, but the root for none of
 * theirs that is not as much earlier.
 */
final class HierarchicalBroadcast extends HostHierarchical {
  private long pieces;
  private boolean isRoot;

  /** The root's place, on its host; -1 elsewhere. */
  private int rootPlace;

  /** Who has this rank's part before it, and behind it; -1: nobody. */
  private int before;

  private int behind;

  HierarchicalBroadcast(HostLane lane, Hierarchy hierarchy) {
    super(lane, hierarchy);
  }

  @Override
  long begin() {
    int rootHost = hierarchy.hostOf(what.root());
    int distance = Math.floorMod(host - rootHost, rail.length);
    isRoot = lane.rank == what.root();
    rootPlace = distance == 0 ? hierarchy.placeOf(what.root()) : -1;
    before = distance == 0 ? what.root() : rail[otherHost(rail.length - 1)];
    behind = distance == rail.length - 1 ? -1 : rail[otherHost(1)];
    pieces = cut(what.stride(), lane.layout.slotBytes());
    return pieces == 0 ? 0 : pieces + DEPTH;
  }

  private long bytes(int part, long number) {
    return number < pieces ? length(number, what.bytes(part)) : 0;
  }

  private long offset(int part, long number) {
    return what.begin(part) + at(number);
  }

  @Override
  boolean step(long step) {
    return isRoot
        ? giveParts(step) && handOnOwn(step - DEPTH)
        : takeAndHandOn(step) && collect(step - DEPTH);
  }

  private boolean giveParts(long number) {
    for (int i = 1; i < local.length; i++) {
      int part = localPart(i);
      long bytes = bytes(part, number);
      if (bytes > 0 && !copyTo(local[part], what.input() + offset(part, number), bytes)) {
        return false;
      }
    }
    return true;
  }

  private boolean handOnOwn(long number) {
    if (what.output() != what.input() && number >= 0) {
      keepAll(number);
    }
    long bytes = bytes(me, number);
    return bytes <= 0 || handOn(what.input() + offset(me, number), bytes);
  }

  /** The root's own copy, of all parts. */
  private void keepAll(long number) {
    for (int part = 0; part < local.length; part++) {
      long bytes = bytes(part, number);
      if (bytes > 0) {
        long offset = offset(part, number);
        HostMemory.copy(what.output() + offset, what.input() + offset, bytes);
      }
    }
  }

  private boolean handOn(long from, long bytes) {
    if (behind >= 0 && !copyTo(behind, from, bytes)) {
      return false;
    }
    for (int i = 1; i < local.length; i++) {
      int place = localPart(i);
      if (place != rootPlace && !copyTo(local[place], from, bytes)) {
        return false;
      }
    }
    return true;
  }

  private boolean takeAndHandOn(long number) {
    long bytes = bytes(me, number);
    if (bytes <= 0) {
      return true;
    }
    long to = what.output() + offset(me, number);
    return copyFrom(before, to, bytes) && handOn(to, bytes);
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
