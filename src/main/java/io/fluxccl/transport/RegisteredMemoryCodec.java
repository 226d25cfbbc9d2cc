// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport;

import io.fluxccl.Experimental;
import io.fluxccl.TransportFailure;
import io.fluxccl.wire.WireReader;
import io.fluxccl.wire.WireWriter;
import java.util.EnumMap;
import java.util.Map;

/**
 * Encodes and decodes a registered memory for peers:
 *
 * <pre>
 *   header "FXRM" version 2   uint16 number of entries
 *   int32 rank   int64 host hash   int64 process hash   int64 address   int64 size
 *   each entry: uint16 ordinal of the transport   bytes of that transport
 * </pre>
 */
@Experimental
public final class RegisteredMemoryCodec {
  /** The maximum length in bytes of one transport's entry. */
  public static final int MAX_ENTRY_LENGTH = 64 * 1024;

  private static final int MAGIC = 0x4d525846;
  private static final int VERSION = 2;
  private static final Transport[] TRANSPORTS = Transport.values();

  private RegisteredMemoryCodec() {}

  /**
   * A registered memory.
   *
   * @param origin the owner, and the memory's location there
   * @param wires the bytes of each transport's handle
   */
  public record Decoded(MemoryOrigin origin, Map<Transport, byte[]> wires) {}

  /** Returns the encoded bytes of a registered memory. */
  public static byte[] encode(Decoded memory) {
    MemoryOrigin origin = memory.origin();
    WireWriter out =
        new WireWriter()
            .header(MAGIC, VERSION)
            .uint16(memory.wires().size())
            .int32(origin.rank())
            .int64(origin.hostHash())
            .int64(origin.processHash())
            .int64(origin.address())
            .int64(origin.size());
    memory.wires().forEach((transport, wire) -> out.uint16(transport.ordinal()).bytes(wire));
    return out.toBytes();
  }

  /**
   * Decodes the bytes that a peer sent, and validates every field.
   *
   * @param bytes received bytes
   * @param fromRank the peer, for the error
   * @return the registered memory
   * @throws TransportFailure if the bytes are malformed
   */
  public static Decoded decode(byte[] bytes, int fromRank) {
    WireReader in = WireReader.ofPeer(bytes, "registered memory", fromRank);
    in.header(MAGIC, VERSION);
    int entries = in.uint16("number of entries");
    int rank = in.int32("rank");
    in.check(rank == fromRank, "rank", rank + ", expected " + fromRank);
    MemoryOrigin origin =
        new MemoryOrigin(
            rank,
            in.int64("host hash"),
            in.int64("process hash"),
            in.int64("address"),
            in.int64("size", 1, Long.MAX_VALUE));
    Map<Transport, byte[]> wires = new EnumMap<>(Transport.class);
    for (int i = 0; i < entries; i++) {
      int ordinal = in.uint16("transport");
      in.check(ordinal < TRANSPORTS.length, "transport", ordinal + ", which is unknown");
      byte[] wire = in.bytes("entry", MAX_ENTRY_LENGTH);
      boolean isNew = wires.put(TRANSPORTS[ordinal], wire) == null;
      in.check(isNew, "transport", TRANSPORTS[ordinal] + " named twice");
    }
    in.end();
    return new Decoded(origin, wires);
  }
}
