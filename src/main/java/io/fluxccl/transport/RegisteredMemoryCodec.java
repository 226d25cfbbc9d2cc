package io.fluxccl.transport;

import io.fluxccl.FluxCclException;
import io.fluxccl.TransportFailure;
import java.nio.BufferUnderflowException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.EnumMap;
import java.util.Map;

/**
 * How a registered memory travels to a peer. Little-endian:
 *
 * <pre>
 *   int32 magic "FXRM"   int16 version (1)   int16 number of entries
 *   int32 rank   int64 host hash   int64 process hash   int64 address   int64 size
 *   each entry: int16 ordinal of the transport   int32 length   that many bytes
 * </pre>
 */
public final class RegisteredMemoryCodec {
  /** The most bytes that one transport's entry may have. */
  public static final int MAX_ENTRY_LENGTH = 64 * 1024;

  private static final int MAGIC = 0x4d525846;
  private static final short VERSION = 1;
  private static final int HEADER_LENGTH = 44;
  private static final int ENTRY_HEADER_LENGTH = 6;
  private static final Transport[] TRANSPORTS = Transport.values();

  private RegisteredMemoryCodec() {}

  /**
   * What the bytes say.
   *
   * @param origin whose memory it is
   * @param wires each transport's own bytes
   */
  public record Decoded(MemoryOrigin origin, Map<Transport, byte[]> wires) {}

  /**
   * Writes.
   *
   * @param memory what to write
   * @return the bytes
   */
  public static byte[] encode(Decoded memory) {
    int length = HEADER_LENGTH;
    for (byte[] wire : memory.wires().values()) {
      length += ENTRY_HEADER_LENGTH + wire.length;
    }
    ByteBuffer out = ByteBuffer.allocate(length).order(ByteOrder.LITTLE_ENDIAN);
    MemoryOrigin origin = memory.origin();
    out.putInt(MAGIC).putShort(VERSION).putShort((short) memory.wires().size());
    out.putInt(origin.rank()).putLong(origin.hostHash()).putLong(origin.processHash());
    out.putLong(origin.address()).putLong(origin.size());
    memory
        .wires()
        .forEach(
            (transport, wire) ->
                out.putShort((short) transport.ordinal()).putInt(wire.length).put(wire));
    return out.array();
  }

  /**
   * Reads what a peer sent, trusting nothing.
   *
   * @param bytes what arrived
   * @param fromRank who sent it, for the error
   * @return what it says
   * @throws TransportFailure if the bytes are malformed
   */
  public static Decoded decode(byte[] bytes, int fromRank) {
    ByteBuffer in = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN);
    try {
      check(in.getInt() == MAGIC, "magic", fromRank);
      check(in.getShort() == VERSION, "version", fromRank);
      int entries = in.getShort();
      check(entries >= 0 && entries <= TRANSPORTS.length, "number of entries", fromRank);
      MemoryOrigin origin =
          new MemoryOrigin(in.getInt(), in.getLong(), in.getLong(), in.getLong(), in.getLong());
      check(origin.rank() == fromRank, "rank", fromRank);
      check(origin.size() > 0, "size", fromRank);
      Map<Transport, byte[]> wires = new EnumMap<>(Transport.class);
      for (int i = 0; i < entries; i++) {
        int ordinal = in.getShort();
        check(ordinal >= 0 && ordinal < TRANSPORTS.length, "transport", fromRank);
        int length = in.getInt();
        check(
            length >= 0 && length <= MAX_ENTRY_LENGTH && length <= in.remaining(),
            "entry length",
            fromRank);
        byte[] wire = new byte[length];
        in.get(wire);
        check(wires.put(TRANSPORTS[ordinal], wire) == null, "transport named twice", fromRank);
      }
      check(!in.hasRemaining(), "trailing bytes", fromRank);
      return new Decoded(origin, wires);
    } catch (BufferUnderflowException e) {
      throw malformed("length=" + bytes.length, fromRank);
    }
  }

  private static void check(boolean condition, String field, int fromRank) {
    if (!condition) {
      throw malformed(field, fromRank);
    }
  }

  private static FluxCclException malformed(String field, int fromRank) {
    return new TransportFailure(
        fromRank,
        "the registered memory that rank " + fromRank + " sent is malformed at its " + field);
  }
}
