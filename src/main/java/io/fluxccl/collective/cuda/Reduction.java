package io.fluxccl.collective.cuda;

import io.fluxccl.collective.BoundCall;
import io.fluxccl.collective.Collective;
import io.fluxccl.collective.CollectiveCall;
import io.fluxccl.collective.Partition;
import io.fluxccl.device.DeviceHandle;
import java.nio.ByteOrder;
import org.agrona.MutableDirectBuffer;

/**
 * What a kernel that reduces is asked for: the twin of {@code reduction.cuh}, which tells the
 * layout. Filled in for each call; used by the one thread that enqueues.
 */
final class Reduction implements DeviceHandle {
  private static final int EVERYBODY = -1;
  private static final int OWNERS = -2;
  private static final int PART_BYTES_OFFSET = Long.BYTES;
  private static final int AREA_OFFSET = PART_BYTES_OFFSET + Long.BYTES;
  private static final int SLOT_BYTES_OFFSET = AREA_OFFSET + Long.BYTES;
  private static final int OP_OFFSET = SLOT_BYTES_OFFSET + Integer.BYTES;
  private static final int TARGET_OFFSET = OP_OFFSET + Integer.BYTES;
  private static final int INPUT_STRIDE_OFFSET = TARGET_OFFSET + 2 * Integer.BYTES;
  private static final int LENGTH = INPUT_STRIDE_OFFSET + Long.BYTES;

  private final PacketArea area;
  private long bytes;
  private long partBytes;
  private long inputStride;
  private int op;
  private int target;

  /** For an algorithm whose packets lie there; {@link PacketArea#NONE} if it has none. */
  Reduction(PacketArea area) {
    this.area = area;
  }

  /** Bytes of the part that each rank reduces; those of the last ranks may be shorter. */
  static long partBytes(BoundCall bound) {
    CollectiveCall call = bound.call();
    return call.collective() == Collective.REDUCE_SCATTER
        ? call.countBytes()
        : Partition.chunkElements(call.count(), call.type(), bound.nRanks()) * call.type().size();
  }

  /** Bytes from one part of the input to the next. */
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
    bytes = bound.totalBytes();
    partBytes = partBytes(bound);
    inputStride = inputStride(bound);
    op = call.op().ordinal();
    target =
        switch (call.collective()) {
          case REDUCE -> call.root();
          case REDUCE_SCATTER -> OWNERS;
          default -> EVERYBODY;
        };
    return this;
  }

  @Override
  public int handleLength() {
    return LENGTH;
  }

  @Override
  public void writeHandle(MutableDirectBuffer out, int offset) {
    out.putLong(offset, bytes, ByteOrder.LITTLE_ENDIAN);
    out.putLong(offset + PART_BYTES_OFFSET, partBytes, ByteOrder.LITTLE_ENDIAN);
    out.putLong(offset + AREA_OFFSET, area.offset(), ByteOrder.LITTLE_ENDIAN);
    out.putInt(offset + SLOT_BYTES_OFFSET, area.slotBytes(), ByteOrder.LITTLE_ENDIAN);
    out.putInt(offset + OP_OFFSET, op, ByteOrder.LITTLE_ENDIAN);
    out.putInt(offset + TARGET_OFFSET, target, ByteOrder.LITTLE_ENDIAN);
    out.putInt(offset + TARGET_OFFSET + Integer.BYTES, 0, ByteOrder.LITTLE_ENDIAN);
    out.putLong(offset + INPUT_STRIDE_OFFSET, inputStride, ByteOrder.LITTLE_ENDIAN);
  }
}
