// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.DataType;
import io.fluxccl.ReduceOp;
import io.fluxccl.device.DeviceBuffer;

/** A call of any collective whose ranks all pass equal counts, without its buffers. */
public record CallShape(Collective what, long count, DataType type, ReduceOp op, int root) {
  /** Returns the call of a rank. */
  public CollectiveCall on(DeviceBuffer in, DeviceBuffer out) {
    return switch (what) {
      case ALL_REDUCE -> CollectiveCall.allReduce(in, out, count, type, op);
      case ALL_GATHER -> CollectiveCall.allGather(in, out, count, type);
      case REDUCE_SCATTER -> CollectiveCall.reduceScatter(in, out, count, type, op);
      case BROADCAST -> CollectiveCall.broadcast(in, out, count, type, root);
      case REDUCE -> CollectiveCall.reduce(in, out, count, type, op, root);
      case ALL_TO_ALL -> CollectiveCall.allToAll(in, out, count, type);
      case GATHER -> CollectiveCall.gather(in, out, count, type, root);
      case SCATTER -> CollectiveCall.scatter(in, out, count, type, root);
      case BARRIER -> CollectiveCall.barrier();
      default -> throw new IllegalArgumentException(what.label());
    };
  }
}
