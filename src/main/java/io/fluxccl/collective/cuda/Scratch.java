package io.fluxccl.collective.cuda;

import io.fluxccl.device.DeviceHandle;
import io.fluxccl.transport.RegisteredMemory;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import org.agrona.MutableDirectBuffer;
import org.agrona.concurrent.UnsafeBuffer;

/**
 * Where the ranks' scratch for large calls lies: the twin of {@code scratch.cuh}, which tells the
 * layout. Immutable.
 */
final class Scratch implements DeviceHandle {
  /** Slots have so much more room than a slice of a part; ranges are multiples of it. */
  private static final long GRAIN = 512;

  private static final int SLOT_BYTES_OFFSET = MappedPeers.MAX_RANKS * Long.BYTES;
  private static final int STAGED_OFFSET = SLOT_BYTES_OFFSET + Long.BYTES;
  private static final int LENGTH = STAGED_OFFSET + 2 * Integer.BYTES;

  private final UnsafeBuffer handle =
      new UnsafeBuffer(ByteBuffer.allocateDirect(LENGTH).order(ByteOrder.LITTLE_ENDIAN));

  /**
   * Scratch.
   *
   * @param memories everybody's, by rank
   * @param offset from their start
   * @param slotBytes of a slot
   * @param staged whether results go by way of it, too
   */
  Scratch(RegisteredMemory[] memories, long offset, long slotBytes, boolean staged) {
    for (int rank = 0; rank < memories.length; rank++) {
      handle.putLong(rank * Long.BYTES, memories[rank].address() + offset, ByteOrder.LITTLE_ENDIAN);
    }
    handle.putLong(SLOT_BYTES_OFFSET, slotBytes, ByteOrder.LITTLE_ENDIAN);
    handle.putInt(STAGED_OFFSET, staged ? 1 : 0, ByteOrder.LITTLE_ENDIAN);
  }

  /** Bytes of a slot for slices of that many bytes of a part. */
  static long slotBytes(long slice) {
    return (slice + GRAIN - 1) / GRAIN * GRAIN + GRAIN;
  }

  @Override
  public int handleLength() {
    return LENGTH;
  }

  @Override
  public void writeHandle(MutableDirectBuffer target, int offset) {
    target.putBytes(offset, handle, 0, LENGTH);
  }
}
