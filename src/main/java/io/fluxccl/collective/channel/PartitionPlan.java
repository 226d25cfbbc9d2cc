// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.channel;

import io.fluxccl.DataType;
import io.fluxccl.ReduceOp;
import io.fluxccl.collective.BoundCall;
import io.fluxccl.collective.Collective;
import io.fluxccl.collective.CollectiveCall;
import io.fluxccl.collective.Partition;
import java.util.function.IntToLongFunction;

/**
 * A call whose buffer is divided into parts, as {@link HostSchedule.Ring}, {@link HostTree} and
 * {@link HierarchicalSchedule} run it: a part for each rank of a ring, or for each rank of a host.
 *
 * @param kind the collective
 * @param input this rank's address, 0 if it has none
 * @param output this rank's address, 0 if it has none; may be the same
 * @param size bytes of the whole buffer, or of each rank's share of it
 * @param stride bytes from one part to the next
 * @param type of the elements
 * @param op how to combine; null if nothing is combined
 * @param root the root, where there is one
 * @param inputs addresses of the inputs of this host's ranks, by place; null unless ranks access
 *     each other's buffers
 * @param outputs addresses of the outputs, likewise
 */
record PartitionPlan(
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
  /** Returns the plan of a ring, with a part for each rank. */
  static PartitionPlan ring(BoundCall bound) {
    return of(bound, bound.nRanks(), null, null);
  }

  /** Returns the plan of a tree, which does not divide the buffer. */
  static PartitionPlan tree(BoundCall bound) {
    return of(bound, 1, null, null);
  }

  /** Returns the plan of a hierarchy, with a part for each rank of a host, through slots alone. */
  static PartitionPlan hierarchical(BoundCall bound, Hierarchy hierarchy) {
    return of(bound, hierarchy.nLocal(), null, null);
  }

  /** Returns the plan of a hierarchy whose ranks access registered buffers of their host. */
  static PartitionPlan direct(BoundCall bound, Hierarchy hierarchy) {
    if (bound.call().collective() != Collective.ALL_REDUCE || !bound.isRegistered()) {
      return hierarchical(bound, hierarchy);
    }
    int[] local = hierarchy.local();
    return of(
        bound, local.length, addresses(local, bound::inputOn), addresses(local, bound::outputOn));
  }

  private static PartitionPlan of(BoundCall bound, int parts, long[] inputs, long[] outputs) {
    CollectiveCall call = bound.call();
    return new PartitionPlan(
        call.collective(),
        call.inputAddress(),
        call.outputAddress(),
        call.countBytes(),
        Partition.chunkElements(call.count(), call.type(), parts) * call.type().size(),
        call.type(),
        call.op(),
        call.root(),
        inputs,
        outputs);
  }

  private static long[] addresses(int[] ranks, IntToLongFunction addressOn) {
    long[] addresses = new long[ranks.length];
    for (int i = 0; i < ranks.length; i++) {
      addresses[i] = addressOn.applyAsLong(ranks[i]);
    }
    return addresses;
  }

  /** Returns whether the ranks of a host access each other's inputs and outputs. */
  boolean isDirect() {
    return inputs != null;
  }

  /** Returns where a part begins. */
  long begin(int part) {
    return Math.min(size, stride * part);
  }

  /** Returns the bytes of a part; the last parts may be shorter. */
  long bytes(int part) {
    return Math.min(stride, size - begin(part));
  }

  /** Returns where a rank's share of the input begins. */
  long inputOf(int rank) {
    return input + rank * size;
  }

  /** Returns where a rank's share of the output begins. */
  long outputOf(int rank) {
    return output + rank * size;
  }
}
