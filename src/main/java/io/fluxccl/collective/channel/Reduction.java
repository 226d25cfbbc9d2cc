package io.fluxccl.collective.channel;

import io.fluxccl.DataType;
import io.fluxccl.ReduceOp;
import io.fluxccl.collective.BoundCall;
import io.fluxccl.collective.CollectiveCall;
import io.fluxccl.collective.Partition;

/**
 * An all-reduce as the ring does it.
 *
 * @param input this rank's address
 * @param output this rank's address; may be the same
 * @param size bytes
 * @param stride bytes of a part, of which there are as many as ranks
 * @param type of the elements
 * @param op how to combine
 */
record Reduction(long input, long output, long size, long stride, DataType type, ReduceOp op) {
  static Reduction of(BoundCall bound) {
    CollectiveCall call = bound.call();
    return new Reduction(
        call.input().address(),
        call.output().address(),
        call.countBytes(),
        Partition.chunkElements(call.count(), call.type(), bound.nRanks()) * call.type().size(),
        call.type(),
        call.op());
  }

  long begin(int part) {
    return Math.min(size, stride * part);
  }

  long bytes(int part) {
    return Math.min(stride, size - begin(part));
  }
}
