package io.fluxccl.transport.cudaipc;

import io.fluxccl.InvalidUsage;
import io.fluxccl.TransportFailure;
import io.fluxccl.device.cuda.CudaMemoryName;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;

/**
 * What an owner tells its peers of one piece of memory. Little-endian:
 *
 * <pre>
 *   int32 magic "FXIM"   int16 version (1)   int16 zero
 *   int64 offset in the allocation
 *   the allocation's name, as {@link CudaMemoryName} says
 * </pre>
 */
final class CudaIpcMemoryCodec {
  static final int HEADER_LENGTH = 16;
  static final int MAX_LENGTH = HEADER_LENGTH + CudaMemoryName.MAX_ENCODED_LENGTH;

  private static final int MAGIC = 0x4d495846;
  private static final short VERSION = 1;

  private CudaIpcMemoryCodec() {}

  /** Where in which allocation the memory begins. */
  record Place(CudaMemoryName allocation, long offset) {}

  static byte[] encode(Place place) {
    byte[] name = place.allocation().encode();
    return ByteBuffer.allocate(HEADER_LENGTH + name.length)
        .order(ByteOrder.LITTLE_ENDIAN)
        .putInt(MAGIC)
        .putShort(VERSION)
        .putShort((short) 0)
        .putLong(place.offset())
        .put(name)
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
    check(
        wire.length > HEADER_LENGTH && wire.length <= MAX_LENGTH, "length", wire.length, fromRank);
    ByteBuffer in = ByteBuffer.wrap(wire).order(ByteOrder.LITTLE_ENDIAN);
    int magic = in.getInt();
    check(magic == MAGIC, "magic", magic, fromRank);
    short version = in.getShort();
    check(version == VERSION, "version", version, fromRank);
    short padding = in.getShort();
    check(padding == 0, "padding", padding, fromRank);
    long offset = in.getLong();
    CudaMemoryName name;
    try {
      name = CudaMemoryName.decode(Arrays.copyOfRange(wire, HEADER_LENGTH, wire.length));
    } catch (InvalidUsage e) {
      throw new TransportFailure(
          fromRank, "the GPU memory that rank " + fromRank + " sent is malformed", e);
    }
    check(offset >= 0 && offset <= name.size(), "offset", offset, fromRank);
    check(size > 0 && size <= name.size() - offset, "size", size, fromRank);
    return new Place(name, offset);
  }

  private static void check(boolean condition, String field, long value, int fromRank) {
    if (!condition) {
      throw new TransportFailure(
          fromRank,
          "the GPU memory that rank "
              + fromRank
              + " sent is malformed at its "
              + field
              + "="
              + value);
    }
  }
}
