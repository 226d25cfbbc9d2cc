// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.mapped;

import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.Text;
import io.fluxccl.TransportFailure;
import io.fluxccl.transport.MemoryOrigin;
import io.fluxccl.transport.Transport;
import io.fluxccl.wire.WireReader;
import io.fluxccl.wire.WireWriter;
import java.util.function.Function;

/**
 * The place of a memory in its segment or allocation, as the owner sends it to peers:
 *
 * <pre>
 *   header "FXMM" version 1   uint16 ordinal of the transport
 *   int64 offset in the segment or allocation   bytes the name of the segment or allocation
 * </pre>
 *
 * @param transport SHM or CUDA_IPC
 * @param name the name of the segment or allocation
 * @param offset bytes from its start
 */
public record MappedMemoryDescriptor(Transport transport, byte[] name, long offset) {
  /** Index of the name in the encoded bytes. */
  public static final int NAME_INDEX = 20;

  private static final int MAGIC = 0x4d4d5846;
  private static final int MAX_NAME_LENGTH = 1024;

  byte[] encode() {
    return new WireWriter()
        .header(MAGIC, 1)
        .uint16(transport.ordinal())
        .int64(offset)
        .bytes(name)
        .toBytes();
  }

  /**
   * Decodes a place that a peer sent, and validates every field.
   *
   * @throws TransportFailure if it is malformed
   */
  static MappedMemoryDescriptor decode(Transport transport, byte[] wire, int fromRank) {
    WireReader in = new WireReader(wire, problem -> malformed(transport, problem, fromRank, null));
    in.header(MAGIC, 1);
    int ordinal = in.uint16("transport");
    in.check(
        ordinal == transport.ordinal(), "transport", ordinal + ", expected " + transport.ordinal());
    long offset = in.int64("offset", 0, Long.MAX_VALUE);
    byte[] name = in.bytes("name", MAX_NAME_LENGTH);
    in.end();
    return new MappedMemoryDescriptor(transport, name, offset);
  }

  /**
   * Returns the decoded name.
   *
   * @param decoder decodes the transport's form of a name
   * @param origin the memory's owner
   * @throws TransportFailure if the name is malformed
   */
  public <N> N nameBy(Function<byte[], N> decoder, MemoryOrigin origin) {
    try {
      return decoder.apply(name);
    } catch (InvalidUsage e) {
      throw malformed(transport, "name: " + e.getMessage(), origin.rank(), e);
    }
  }

  /**
   * Checks that the memory lies within its segment or allocation.
   *
   * @param length bytes of the segment or allocation
   * @param origin the memory's owner, with its size
   * @throws TransportFailure if it does not
   */
  public void checkWithin(long length, MemoryOrigin origin) {
    if (offset > length || origin.size() <= 0 || origin.size() > length - offset) {
      String problem = Text.of("offset=%s and size=%s, of %s bytes", offset, origin.size(), length);
      throw malformed(transport, problem, origin.rank(), null);
    }
  }

  private static FluxCclException malformed(
      Transport transport, String problem, int fromRank, Throwable cause) {
    return new TransportFailure(
        fromRank,
        Text.of("the %s memory that rank %s sent is malformed: %s", transport, fromRank, problem),
        cause);
  }
}
