package io.fluxccl.collective.channel;

import io.fluxccl.DataType;
import io.fluxccl.ReduceOp;
import io.fluxccl.collective.BoundCall;
import io.fluxccl.collective.Collective;
import io.fluxccl.collective.CollectiveCall;
import io.fluxccl.collective.Partition;
import java.util.function.IntToLongFunction;

/**
 * A collective as the hierarchy does it.
 *
 * @param kind which
 * @param input this rank's address, 0 if it has none
 * @param output this rank's address, 0 if it has none; may be the same
 * @param size bytes of the call's count: of the whole buffer, or of each rank's share of it
 * @param stride bytes of a part, of which there are as many as ranks on a host
 * @param type of the elements
 * @param op how to combine; null where nothing is
 * @param root the root, where there is one
 * @param inputs where this rank reaches the inputs of its host's ranks, by place; null if not all
 *     buffers are registered, or the collective makes no use of it
 * @param outputs the same of the outputs
 */
record HierarchicalCall(
    Collective kind,
    long input,
    long output,
    long size,
    long stride,
    DataType type,
    ReduceOp op,
    int root,
    long[] inputs,
    long[] outputs) {
  /** As it is done through slots alone. */
  static HierarchicalCall of(BoundCall bound, Hierarchy hierarchy) {
    return of(bound, hierarchy, false);
  }

  /** As ranks do it that reach registered buffers of their host. */
  static HierarchicalCall directlyOf(BoundCall bound, Hierarchy hierarchy) {
    boolean direct = bound.call().collective() == Collective.ALL_REDUCE && bound.isRegistered();
    return of(bound, hierarchy, direct);
  }

  private static HierarchicalCall of(BoundCall bound, Hierarchy hierarchy, boolean direct) {
    CollectiveCall call = bound.call();
    int[] local = hierarchy.local();
    return new HierarchicalCall(
        call.collective(),
        call.input() == null ? 0 : call.input().address(),
        call.output() == null ? 0 : call.output().address(),
        call.countBytes(),
        Partition.chunkElements(call.count(), call.type(), local.length) * call.type().size(),
        call.type(),
        call.op(),
        call.root(),
        direct ? addresses(local, bound::inputOn) : null,
        direct ? addresses(local, bound::outputOn) : null);
  }

  private static long[] addresses(int[] ranks, IntToLongFunction addressOn) {
    long[] addresses = new long[ranks.length];
    for (int i = 0; i < ranks.length; i++) {
      addresses[i] = addressOn.applyAsLong(ranks[i]);
    }
    return addresses;
  }

  /** Whether the ranks of a host read each other's inputs, and write each other's outputs. */
  boolean isDirect() {
    return inputs != null;
  }

  long begin(int part) {
    return Math.min(size, stride * part);
  }

  long bytes(int part) {
    return Math.min(stride, size - begin(part));
  }

  /** Where a rank's share of the input begins. */
  long inputOf(int rank) {
    return input + rank * size;
  }

  /** Where a rank's share of the output begins. */
  long outputOf(int rank) {
    return output + rank * size;
  }
}
