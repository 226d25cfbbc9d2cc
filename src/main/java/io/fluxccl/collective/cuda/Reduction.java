// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.cuda;

import io.fluxccl.ReduceOp;
import io.fluxccl.collective.BoundCall;
import io.fluxccl.collective.Collective;
import io.fluxccl.collective.CollectiveCall;
import io.fluxccl.collective.KernelStruct;
import io.fluxccl.collective.Partition;

/**
 * The call of a kernel that reduces: the twin of {@code reduction.cuh}, which defines the layout.
 * Filled in for each call; used by the one thread that enqueues.
 */
final class Reduction extends KernelStruct {
  private static final int EVERYBODY = -1;
  private static final int OWNERS = -2;
  private static final int AREA_OFFSET = 16;
  private static final int OP_OFFSET = 28;
  private static final int LENGTH = 48;

  /** Creates the struct of an algorithm with packets in an area, or {@link PacketArea#NONE}. */
  Reduction(PacketArea area) {
    super(LENGTH);
    use(area);
  }

  /** Fills in the area of the packets. */
  void use(PacketArea area) {
    at(AREA_OFFSET).putLong(area.offset()).putInt(area.slotBytes());
  }

  /**
   * Fills in a matrix, whose rows every rank gets.
   *
   * @return this, valid until the next call
   */
  Reduction ofRows(long bytes, long rowBytes) {
    at(0).putLong(bytes).putLong(rowBytes);
    at(OP_OFFSET).putInt(ReduceOp.SUM.ordinal()).putInt(EVERYBODY);
    putInt((int) (bytes / rowBytes)).putLong(rowBytes);
    return this;
  }

  /** Returns the bytes of the part that each rank reduces; the last ranks' may be shorter. */
  static long partBytes(BoundCall bound) {
    CollectiveCall call = bound.call();
    return call.collective() == Collective.REDUCE_SCATTER
        ? call.countBytes()
        : Partition.chunkElements(call.count(), call.type(), bound.nRanks()) * call.type().size();
  }

  /** Returns the bytes from one part of the input to the next. */
  static long inputStride(BoundCall bound) {
    return bound.call().collective() == Collective.REDUCE_SCATTER
        ? bound.call().strideBytes()
        : partBytes(bound);
  }

  /**
   * Fills in a call.
   *
   * @return this, valid until the next call
   */
  Reduction bind(BoundCall bound) {
    CollectiveCall call = bound.call();
    int target =
        switch (call.collective()) {
          case REDUCE -> call.root();
          case REDUCE_SCATTER -> OWNERS;
          default -> EVERYBODY;
        };
    at(0).putLong(bound.totalBytes()).putLong(partBytes(bound));
    at(OP_OFFSET).putInt(call.op().ordinal()).putInt(target).putInt(0).putLong(inputStride(bound));
    return this;
  }
}
