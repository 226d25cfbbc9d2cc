package io.fluxccl.collective.cuda;

import io.fluxccl.collective.BoundCall;
import io.fluxccl.collective.Collective;
import io.fluxccl.collective.CollectiveCall;
import io.fluxccl.collective.Partition;

/**
 * The call of a kernel that reduces: the twin of {@code reduction.cuh}, which defines the layout.
 * Filled in for each call; used by the one thread that enqueues.
 */
final class Reduction extends KernelStruct {
  private static final int EVERYBODY = -1;
  private static final int OWNERS = -2;
  private static final int PART_BYTES_OFFSET = Long.BYTES;
  private static final int AREA_OFFSET = PART_BYTES_OFFSET + Long.BYTES;
  private static final int SLOT_BYTES_OFFSET = AREA_OFFSET + Long.BYTES;
  private static final int OP_OFFSET = SLOT_BYTES_OFFSET + Integer.BYTES;
  private static final int TARGET_OFFSET = OP_OFFSET + Integer.BYTES;
  private static final int INPUT_STRIDE_OFFSET = TARGET_OFFSET + 2 * Integer.BYTES;
  private static final int LENGTH = INPUT_STRIDE_OFFSET + Long.BYTES;

  /** Creates the struct of an algorithm with packets in an area, or {@link PacketArea#NONE}. */
  Reduction(PacketArea area) {
    super(LENGTH);
    use(area);
  }

  /** Fills in the area of the packets. */
  void use(PacketArea area) {
    putLong(AREA_OFFSET, area.offset());
    putInt(SLOT_BYTES_OFFSET, area.slotBytes());
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
    putLong(0, bound.totalBytes());
    putLong(PART_BYTES_OFFSET, partBytes(bound));
    putInt(OP_OFFSET, call.op().ordinal());
    putInt(
        TARGET_OFFSET,
        switch (call.collective()) {
          case REDUCE -> call.root();
          case REDUCE_SCATTER -> OWNERS;
          default -> EVERYBODY;
        });
    putLong(INPUT_STRIDE_OFFSET, inputStride(bound));
    return this;
  }
}
