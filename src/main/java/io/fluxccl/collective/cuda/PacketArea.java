// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.cuda;

import io.fluxccl.DataType;
import io.fluxccl.device.DeviceBuffer;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Locale;
import org.agrona.concurrent.UnsafeBuffer;

/**
 * Slots of packets in a region of the state: two sets, in each for each phase a slot for each rank.
 *
 * @param kind kind of all packets in the area
 * @param offset from the state's start
 * @param slots number of slots
 * @param slotBytes bytes of a slot with the packets' overhead
 */
record PacketArea(PacketArea.Kind kind, long offset, int slots, int slotBytes) {
  /** An area without packets. */
  static final PacketArea NONE = new PacketArea(Kind.LL8, 0, 0, 0);

  private static final int SETS = 2;
  private static final byte EMPTY = -1;
  private static final int FILL_BYTES = 1 << 20;

  /** The kinds of packets of {@code packet_rows.cuh}. A warp sends a row of packets at once. */
  enum Kind {
    /** 4 bytes of payload in 8. */
    LL8(128, 256),
    /** 120 bytes of payload in a line of 128. */
    LL128(480, 512),
    /** Payload alone; for floating-point types only. */
    SENTINEL(512, 512);

    private final int payload;
    private final int size;

    Kind(int payload, int size) {
      this.payload = payload;
      this.size = size;
    }

    /** Returns the name in names of kernels and algorithms. */
    String label() {
      return name().toLowerCase(Locale.ROOT);
    }

    /** Returns the value for this kind. */
    double choose(double ll8, double ll128, double sentinel) {
      return this == LL8 ? ll8 : this == LL128 ? ll128 : sentinel;
    }

    /** Returns whether packets can carry elements of a type. */
    boolean carries(DataType type) {
      return switch (this) {
        case LL8 -> type.size() <= Integer.BYTES;
        case LL128 -> true;
        case SENTINEL -> type.isFloatingPoint();
      };
    }

    /** Returns the number of rows that hold these bytes. */
    long rows(long bytes) {
      return (bytes + payload - 1) / payload;
    }

    /** Returns the size of the rows that hold these bytes. */
    long rowBytes(long bytes) {
      return rows(bytes) * size;
    }
  }

  /**
   * Returns an area.
   *
   * @param phases phases of the algorithm that use slots of their own
   * @param bytes bytes of payload that a slot holds
   */
  static PacketArea of(Kind kind, long offset, int phases, int nRanks, long bytes) {
    return new PacketArea(
        kind, offset, SETS * phases * nRanks, Math.toIntExact(kind.rowBytes(bytes)));
  }

  /** Returns whether a slot holds these bytes of payload. */
  boolean holds(long bytes) {
    return kind.rowBytes(bytes) <= slotBytes;
  }

  /** Returns the bytes of all slots. */
  long length() {
    return (long) slots * slotBytes;
  }

  /** Returns where the area ends. */
  long end() {
    return offset + length();
  }

  /**
   * Fills the area of sentinel packets in a buffer with sentinels, which mean that no packet is
   * there; blocks until it is done.
   *
   * @param start of the area's state in the buffer
   */
  void fill(DeviceBuffer buffer, long start) {
    ByteBuffer ones =
        ByteBuffer.allocateDirect((int) Math.min(length(), FILL_BYTES))
            .order(ByteOrder.LITTLE_ENDIAN);
    new UnsafeBuffer(ones).setMemory(0, ones.capacity(), EMPTY);
    for (long at = 0; at < length(); at += ones.capacity()) {
      ones.clear().limit((int) Math.min(ones.capacity(), length() - at));
      buffer.upload(start + offset + at, ones);
    }
  }
}
