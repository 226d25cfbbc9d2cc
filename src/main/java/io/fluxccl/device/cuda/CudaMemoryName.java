// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import io.fluxccl.InvalidUsage;
import io.fluxccl.Text;
import io.fluxccl.wire.WireReader;
import io.fluxccl.wire.WireWriter;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.regex.Pattern;

/**
 * The name by which another process of this host finds a {@link CudaMemory}. Immutable. Written by
 * {@link WireWriter}:
 *
 * <pre>
 *   header: magic "FXCM", version 3   uint16 kind: 0 plain, 1 VMM, 2 pool
 *   int64 owner's process   int64 number within it   int64 size   string PCI bus id of the GPU
 *   plain: 64 bytes, the driver's IPC handle
 *   VMM:   string the owner's abstract Unix socket, without its leading zero
 *          uint16 pieces, contiguous and all of one size
 *          16 bytes, the token by which the owner knows the first; DescriptorServer.tokenOf
 *   pool:  string the socket   16 bytes, the token of the pool   64 bytes, where in the pool
 * </pre>
 *
 * @param kind the way in which it was allocated
 * @param id identifies the process and its allocation
 * @param size its length in bytes
 * @param pciBusId the GPU it is on, as the operating system writes it: {@code 0000:3b:00.0}
 * @param socket the owner's abstract socket, without the leading zero; empty for plain memory
 * @param secret opens the memory: the driver's IPC handle, or the token that the owner's socket
 *     expects; for a pool, the token followed by the driver's export data
 * @param pieces number of driver handles of equal size that it consists of; 1 except for VMM memory
 */
public record CudaMemoryName(
    CudaMemoryKind kind,
    CudaMemory.Id id,
    long size,
    String pciBusId,
    String socket,
    byte[] secret,
    int pieces) {
  /** Bytes of the driver's IPC handle. */
  public static final int HANDLE_LENGTH = 64;

  /** Bytes of a VMM allocation's token. */
  public static final int TOKEN_LENGTH = 16;

  /** The most pieces of a VMM allocation: each takes a file descriptor of its owner. */
  static final int MAX_PIECES = 1024;

  /** The most bytes that an encoded name has. */
  public static final int MAX_ENCODED_LENGTH = 256;

  private static final int MAGIC = 0x4d435846;
  private static final int VERSION = 3;
  private static final int MAX_SOCKET_LENGTH = 107;
  private static final Pattern PCI_BUS_ID =
      Pattern.compile("[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\\.[0-7]");
  private static final Pattern SOCKET = Pattern.compile("[!-~]{1," + MAX_SOCKET_LENGTH + "}");
  private static final CudaMemoryKind[] KINDS = CudaMemoryKind.values();

  /** Refuses values that cannot name memory. */
  public CudaMemoryName {
    check(size > 0, "size", size);
    check(PCI_BUS_ID.matcher(pciBusId).matches(), "PCI bus id", pciBusId);
    if (kind == CudaMemoryKind.PLAIN) {
      check(secret.length == HANDLE_LENGTH, "handle length", secret.length);
    } else {
      check(SOCKET.matcher(socket).matches(), "socket", socket);
      check(secret.length == secretLength(kind), "token length", secret.length);
    }
    check(
        pieces == 1 || kind == CudaMemoryKind.VMM && pieces > 1 && pieces <= MAX_PIECES,
        "pieces",
        pieces);
    check(size % pieces == 0, "size", size + " in " + pieces + " pieces");
    secret = secret.clone();
  }

  private static int secretLength(CudaMemoryKind kind) {
    return switch (kind) {
      case PLAIN -> HANDLE_LENGTH;
      case VMM -> TOKEN_LENGTH;
      case POOL -> TOKEN_LENGTH + HANDLE_LENGTH;
    };
  }

  @Override
  public byte[] secret() {
    return secret.clone();
  }

  /** Returns this name as bytes, at most {@link #MAX_ENCODED_LENGTH}. */
  public byte[] encode() {
    WireWriter out = new WireWriter().header(MAGIC, VERSION).uint16(kind.ordinal());
    out.int64(id.process()).int64(id.number()).int64(size).string(pciBusId);
    if (kind != CudaMemoryKind.PLAIN) {
      out.string(socket);
    }
    if (kind == CudaMemoryKind.VMM) {
      out.uint16(pieces);
    }
    return out.raw(secret).toBytes();
  }

  /**
   * Reads a name and validates every field.
   *
   * @param bytes the received bytes
   * @return the name
   * @throws InvalidUsage if the bytes are no name; the message names the invalid field
   */
  public static CudaMemoryName decode(byte[] bytes) {
    check(bytes.length <= MAX_ENCODED_LENGTH, "length", bytes.length);
    WireReader in =
        new WireReader(bytes, problem -> InvalidUsage.of("name of GPU memory with %s", problem))
            .header(MAGIC, VERSION);
    int ordinal = in.uint16("kind");
    check(ordinal < KINDS.length, "kind", ordinal);
    CudaMemoryKind kind = KINDS[ordinal];
    CudaMemory.Id id = new CudaMemory.Id(in.int64("process"), in.int64("number"));
    long size = in.int64("size");
    String pciBusId = in.string("PCI bus id", MAX_ENCODED_LENGTH);
    String socket = kind == CudaMemoryKind.PLAIN ? "" : in.string("socket", MAX_SOCKET_LENGTH);
    int pieces = kind == CudaMemoryKind.VMM ? in.uint16("pieces") : 1;
    byte[] secret = in.raw("secret", secretLength(kind));
    in.end();
    return new CudaMemoryName(kind, id, size, pciBusId, socket, secret, pieces);
  }

  private static void check(boolean condition, String field, Object value) {
    if (!condition) {
      throw InvalidUsage.of("name of GPU memory with %s=%s", field, value);
    }
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof CudaMemoryName
        && Arrays.equals(encode(), ((CudaMemoryName) other).encode());
  }

  @Override
  public int hashCode() {
    return id.hashCode();
  }

  /** Omits the secret. */
  @Override
  public String toString() {
    return Text.of(
        "%s memory %s of process %s, %s bytes on %s",
        kind, id.number(), HexFormat.of().toHexDigits(id.process()), size, pciBusId);
  }
}
