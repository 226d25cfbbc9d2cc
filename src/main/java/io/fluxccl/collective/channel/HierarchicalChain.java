// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.channel;

import static io.fluxccl.collective.channel.PipeLayout.DEPTH;

import io.fluxccl.collective.Collective;
import io.fluxccl.device.host.HostMemory;

/**
 * Broadcast and reduce by hosts. The ranks of a host divide the buffer into parts. Each part goes
 * along its rail from host to host, in a chain that begins or ends at the root's host; on each host
 * it goes from rank to rank. So every link between hosts carries the buffer once.
 *
 * <pre>
 *   broadcast, step t
 *     root:     send each local rank piece t of its part
 *               forward piece t - DEPTH of its own part
 *     others:   receive piece t of the own part, from the root or the host before; forward it
 *               receive piece t - DEPTH of the other parts from the local ranks
 *
 *   reduce, step t
 *               send piece t of each part to the local rank that handles the part
 *               combine piece t - DEPTH of the own part, and send it to the host nearer to the root
 *     root:     receive piece t - 2 DEPTH of the other parts
 * </pre>
 *
 * <p>A broadcast forwards a piece to the next host, and to the local ranks but the root. A rank
 * after the root on its rail waits for a step of the root that is DEPTH later than its own. The
 * root waits only for steps of that rank that are at least DEPTH earlier than its own. A reduce
 * combines in local rank order, then the data from the host further away; 16-bit values are rounded
 * between.
 */
final class HierarchicalChain extends HostHierarchical {
  private static final int NOBODY = -1;

  private boolean isRoot;

  /** The root's place on its host; {@link #NOBODY} on others. */
  private int rootPlace;

  /** The rank that has this rank's part one step nearer to the root, or {@link #NOBODY}. */
  private int nearer;

  /** The rank that has this rank's part one step further from the root, or {@link #NOBODY}. */
  private int further;

  private int divisor;

  HierarchicalChain(HostPipeWorker lane, Hierarchy hierarchy) {
    super(lane, hierarchy);
  }

  private boolean isBroadcast() {
    return what.kind() == Collective.BROADCAST;
  }

  @Override
  long begin() {
    int distance = Math.floorMod(host - hierarchy.hostOf(what.root()), rail.length);
    isRoot = lane.rank == what.root();
    rootPlace = distance == 0 ? hierarchy.placeOf(what.root()) : NOBODY;
    further = distance == rail.length - 1 ? NOBODY : rail[otherHost(1)];
    nearer = distance > 0 ? rail[otherHost(rail.length - 1)] : isRoot ? NOBODY : what.root();
    divisor = distance == 0 ? lane.nRanks : 1;
    cut(what.stride(), lane.layout.slotBytes());
    return pieces == 0 ? 0 : pieces + (isBroadcast() ? DEPTH : 2 * DEPTH);
  }

  @Override
  boolean step(long step) {
    if (!isBroadcast()) {
      return sendParts(step)
          && combine(step - DEPTH)
          && (!isRoot || receiveParts(step - 2 * DEPTH));
    }
    return isRoot
        ? sendParts(step) && forwardOwn(step - DEPTH)
        : receiveAndForward(step) && receiveParts(step - DEPTH);
  }

  private boolean forwardOwn(long number) {
    if (what.output() != what.input() && number >= 0) {
      copyToOutput(number);
    }
    long bytes = partBytes(me, number);
    return bytes <= 0 || forward(what.input() + partOffset(me, number), bytes);
  }

  private void copyToOutput(long number) {
    for (int part = 0; part < local.length; part++) {
      long bytes = partBytes(part, number);
      if (bytes > 0) {
        long offset = partOffset(part, number);
        HostMemory.copy(what.output() + offset, what.input() + offset, bytes);
      }
    }
  }

  private boolean forward(long from, long bytes) {
    if (further != NOBODY && !lane.pipes[further].send(from, bytes)) {
      return false;
    }
    for (int i = 1; i < local.length; i++) {
      int place = localPart(i);
      if (place != rootPlace && !lane.pipes[local[place]].send(from, bytes)) {
        return false;
      }
    }
    return true;
  }

  private boolean receiveAndForward(long number) {
    long bytes = partBytes(me, number);
    if (bytes <= 0) {
      return true;
    }
    long to = what.output() + partOffset(me, number);
    return lane.pipes[nearer].receive(to, bytes) && forward(to, bytes);
  }

  private boolean combine(long number) {
    long bytes = partBytes(me, number);
    if (bytes <= 0) {
      return true;
    }
    long offset = partOffset(me, number);
    if (!locals.take(lane.sources, what.input() + offset)) {
      return false;
    }
    int sources = local.length;
    if (further != NOBODY) {
      lane.sources[sources] = lane.pipes[further].take();
      if (lane.sources[sources++] == 0) {
        return false;
      }
    }
    lane.targets[0] = nearer == NOBODY ? what.output() + offset : lane.pipes[nearer].claim();
    if (lane.targets[0] == 0) {
      return false;
    }
    reduce(sources, 1, bytes, divisor);
    if (nearer != NOBODY) {
      lane.pipes[nearer].publish(bytes);
    }
    locals.release();
    if (further != NOBODY) {
      lane.pipes[further].release();
    }
    return true;
  }
}
