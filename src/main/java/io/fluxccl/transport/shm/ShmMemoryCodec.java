package io.fluxccl.transport.shm;

import io.fluxccl.InvalidUsage;
import io.fluxccl.TransportFailure;
import io.fluxccl.device.host.SegmentName;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;

/**
 * What an owner tells its peers of one piece of memory. Little-endian:
 *
 * <pre>
 *   int32 magic "FXSM"   int16 version (1)   int16 zero
 *   int64 offset in the segment
 *   the segment's name, as {@link SegmentName} says
 * </pre>
 */
final class ShmMemoryCodec {
  static final int LENGTH = 16 + SegmentName.ENCODED_LENGTH;

  private static final int MAGIC = 0x4d535846;
  private static final short VERSION = 1;

  private ShmMemoryCodec() {}

  /** Where in which segment the memory begins. */
  record Place(SegmentName segment, long offset) {}

  static byte[] encode(Place place) {
    return ByteBuffer.allocate(LENGTH)
        .order(ByteOrder.LITTLE_ENDIAN)
        .putInt(MAGIC)
        .putShort(VERSION)
        .putShort((short) 0)
        .putLong(place.offset())
        .put(place.segment().encode())
        .array();
  }

  /**
   * Reads, trusting nothing.
   *
   * @param wire what arrived
   * @param size of the memory, as its owner said
   * @param fromRank who sent it, for the error
   * @throws TransportFailure if it is malformed, or memory of that size does not lie within it
   */
  static Place decode(byte[] wire, long size, int fromRank) {
    check(wire.length == LENGTH, "length", wire.length, fromRank);
    ByteBuffer in = ByteBuffer.wrap(wire).order(ByteOrder.LITTLE_ENDIAN);
    int magic = in.getInt();
    check(magic == MAGIC, "magic", magic, fromRank);
    short version = in.getShort();
    check(version == VERSION, "version", version, fromRank);
    short padding = in.getShort();
    check(padding == 0, "padding", padding, fromRank);
    long offset = in.getLong();
    SegmentName name;
    try {
      name = SegmentName.decode(Arrays.copyOfRange(wire, in.position(), LENGTH));
    } catch (InvalidUsage e) {
      throw new TransportFailure(
          fromRank, "the shared memory that rank " + fromRank + " sent is malformed", e);
    }
    check(offset >= 0 && offset <= name.size(), "offset", offset, fromRank);
    check(size > 0 && size <= name.size() - offset, "size", size, fromRank);
    return new Place(name, offset);
  }

  private static void check(boolean condition, String field, long value, int fromRank) {
    if (!condition) {
      throw new TransportFailure(
          fromRank,
          "the shared memory that rank "
              + fromRank
              + " sent is malformed at its "
              + field
              + "="
              + value);
    }
  }
}
