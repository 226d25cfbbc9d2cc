// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.channel;

import static io.fluxccl.collective.channel.PipeLayout.DEPTH;

import io.fluxccl.ReduceOp;
import io.fluxccl.collective.pipe.PipeGroup;

/**
 * All-reduce over hosts of equally many ranks, whose network reduces data itself. As {@link
 * HierarchicalAllReduce}, but a rail's sum comes from the network:
 *
 * <pre>
 *   step t    send piece t of each part to the local rank that handles the part
 *             reduce piece t - DEPTH of the own part over the local ranks, give it to the network
 *             take the hosts' sum of piece t - DEPTH - IN_FLIGHT, send it to the local ranks
 *             receive piece t - 2 DEPTH - IN_FLIGHT of the other parts from the local ranks
 * </pre>
 *
 * <p>The network chooses the order in which it combines the hosts' values.
 */
final class CollNetAllReduce extends HostHierarchical {
  private static final int IN_FLIGHT = RailNetwork.Lane.SLOTS;

  private final RailNetwork.Lane network;
  private int behind;
  private boolean direct;

  CollNetAllReduce(HostPipeWorker lane, Hierarchy hierarchy, RailNetwork.Lane network) {
    super(lane, hierarchy);
    this.network = network;
  }

  @Override
  long begin() {
    direct = what.isDirect();
    behind = IN_FLIGHT + (direct ? 0 : 2 * DEPTH);
    cut(what.stride(), lane.layout.slotBytes());
    return pieces == 0 ? 0 : pieces + behind;
  }

  @Override
  boolean step(long step) {
    if (direct) {
      return (step > 0 || locals.barrier())
          && takeFromNetwork(step - IN_FLIGHT)
          && reduceLocally(step)
          && (step < pieces + behind - 1 || locals.barrier());
    }
    return sendParts(step)
        && takeFromNetwork(step - DEPTH - IN_FLIGHT)
        && reduceLocally(step - DEPTH)
        && receiveParts(step - behind);
  }

  private boolean reduceLocally(long step) {
    long bytes = partBytes(me, step);
    if (bytes <= 0) {
      return true;
    }
    long begin = partOffset(me, step);
    if (direct) {
      for (int i = 0; i < local.length; i++) {
        lane.sources[i] = what.inputs()[i] + begin;
      }
    } else if (!locals.take(lane.sources, what.input() + begin)) {
      return false;
    }
    lane.targets[0] = network.nextInput();
    reduce(local.length, 1, bytes, 1);
    if (!direct) {
      locals.release();
    }
    ReduceOp op = what.op() == ReduceOp.AVG ? ReduceOp.SUM : what.op();
    return network.post(bytes / what.type().size(), what.type(), op);
  }

  private boolean takeFromNetwork(long step) {
    long bytes = partBytes(me, step);
    if (bytes <= 0) {
      return true;
    }
    lane.sources[0] = network.take();
    if (lane.sources[0] == 0) {
      return false;
    }
    int targets = direct ? outputs(step) : locals.claim(lane.targets, PipeGroup.ALL);
    if (targets < 0) {
      return false;
    }
    lane.targets[targets++] = what.output() + partOffset(me, step);
    reduce(1, targets, bytes, lane.nRanks);
    if (!direct) {
      locals.publish(bytes, PipeGroup.ALL);
    }
    return true;
  }
}
