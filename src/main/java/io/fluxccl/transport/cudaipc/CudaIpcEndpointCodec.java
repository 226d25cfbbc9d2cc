package io.fluxccl.transport.cudaipc;

import io.fluxccl.TransportFailure;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.regex.Pattern;

/**
 * What one end of a connection tells the other. Little-endian:
 *
 * <pre>
 *   int32 magic "FXIE"   int16 version (1)   int16 length of the last field
 *   int32 rank   int32 tag   int64 host hash   int64 process hash
 *   the PCI bus id of its GPU, ASCII, as the operating system writes it: 0000:3b:00.0
 * </pre>
 */
final class CudaIpcEndpointCodec {
  static final int HEADER_LENGTH = 32;
  static final int MAX_BUS_ID_LENGTH = 16;

  private static final int MAGIC = 0x45495846;
  private static final short VERSION = 1;
  private static final Pattern PCI_BUS_ID =
      Pattern.compile("[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\\.[0-7]");

  private CudaIpcEndpointCodec() {}

  /** One end of a connection. */
  record End(int rank, int tag, long hostHash, long processHash, String pciBusId) {}

  static byte[] encode(End end) {
    byte[] busId = end.pciBusId().getBytes(StandardCharsets.US_ASCII);
    return ByteBuffer.allocate(HEADER_LENGTH + busId.length)
        .order(ByteOrder.LITTLE_ENDIAN)
        .putInt(MAGIC)
        .putShort(VERSION)
        .putShort((short) busId.length)
        .putInt(end.rank())
        .putInt(end.tag())
        .putLong(end.hostHash())
        .putLong(end.processHash())
        .put(busId)
        .array();
  }

  /**
   * Reads, trusting nothing.
   *
   * @param wire what arrived
   * @param fromRank who sent it, for the error
   * @throws TransportFailure if it is malformed
   */
  static End decode(byte[] wire, int fromRank) {
    check(
        wire.length > HEADER_LENGTH && wire.length <= HEADER_LENGTH + MAX_BUS_ID_LENGTH,
        "length",
        wire.length,
        fromRank);
    ByteBuffer in = ByteBuffer.wrap(wire).order(ByteOrder.LITTLE_ENDIAN);
    int magic = in.getInt();
    check(magic == MAGIC, "magic", magic, fromRank);
    short version = in.getShort();
    check(version == VERSION, "version", version, fromRank);
    short length = in.getShort();
    check(length == wire.length - HEADER_LENGTH, "length of the bus id", length, fromRank);
    int rank = in.getInt();
    check(rank == fromRank, "rank", rank, fromRank);
    int tag = in.getInt();
    long hostHash = in.getLong();
    long processHash = in.getLong();
    byte[] busId = new byte[length];
    in.get(busId);
    // One char a byte: what is no ASCII fails the pattern.
    String pciBusId = new String(busId, StandardCharsets.ISO_8859_1);
    check(PCI_BUS_ID.matcher(pciBusId).matches(), "bus id of length", length, fromRank);
    return new End(rank, tag, hostHash, processHash, pciBusId);
  }

  private static void check(boolean condition, String field, long value, int fromRank) {
    if (!condition) {
      throw new TransportFailure(
          fromRank,
          "the CUDA_IPC endpoint that rank "
              + fromRank
              + " sent is malformed at its "
              + field
              + "="
              + value);
    }
  }
}
