package io.fluxccl.device.cuda;

import io.fluxccl.InvalidUsage;
import java.nio.BufferUnderflowException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.regex.Pattern;

/**
 * How another process of this host finds a {@link CudaAllocation}. Immutable. Little-endian:
 *
 * <pre>
 *   int32 magic "FXCM"   int16 version (1)   int16 kind: 0 plain, 1 VMM
 *   int64 owner's process   int64 number within it   int64 size
 *   int8 length   that many bytes: the GPU's PCI bus id, ASCII
 *   plain: 64 bytes, the driver's IPC handle
 *   VMM:   int8 length   that many bytes: the owner's abstract Unix socket, ASCII, without its leading zero
 *          16 bytes, the token by which the owner knows the allocation
 * </pre>
 */
public final class CudaMemoryName {
  /** Bytes of the driver's IPC handle. */
  public static final int HANDLE_LENGTH = 64;

  /** Bytes of a VMM allocation's token. */
  public static final int TOKEN_LENGTH = 16;

  /** The most bytes that an encoded name has. */
  public static final int MAX_ENCODED_LENGTH = 256;

  private static final int MAGIC = 0x4d435846;
  private static final short VERSION = 1;
  private static final int MAX_SOCKET_LENGTH = 107;
  private static final Pattern PCI_BUS_ID =
      Pattern.compile("[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\\.[0-7]");
  private static final Pattern SOCKET = Pattern.compile("[!-~]{1," + MAX_SOCKET_LENGTH + "}");
  private static final CudaMemoryKind[] KINDS = CudaMemoryKind.values();

  private final CudaMemoryKind kind;
  private final CudaAllocation.Id id;
  private final long size;
  private final String pciBusId;
  private final String socket;
  private final byte[] secret;

  private CudaMemoryName(
      CudaMemoryKind kind,
      CudaAllocation.Id id,
      long size,
      String pciBusId,
      String socket,
      byte[] secret) {
    check(size > 0, "size", size);
    check(PCI_BUS_ID.matcher(pciBusId).matches(), "PCI bus id", pciBusId);
    if (kind == CudaMemoryKind.PLAIN) {
      check(secret.length == HANDLE_LENGTH, "handle length", secret.length);
    } else {
      check(SOCKET.matcher(socket).matches(), "socket", socket);
      check(secret.length == TOKEN_LENGTH, "token length", secret.length);
    }
    this.kind = kind;
    this.id = id;
    this.size = size;
    this.pciBusId = pciBusId;
    this.socket = socket;
    this.secret = secret.clone();
  }

  /** The name of plain memory. */
  static CudaMemoryName plain(CudaAllocation.Id id, long size, String pciBusId, byte[] handle) {
    return new CudaMemoryName(CudaMemoryKind.PLAIN, id, size, pciBusId, "", handle);
  }

  /** The name of VMM memory. */
  static CudaMemoryName vmm(
      CudaAllocation.Id id, long size, String pciBusId, String socket, byte[] token) {
    return new CudaMemoryName(CudaMemoryKind.VMM, id, size, pciBusId, socket, token);
  }

  /** How it was allocated. */
  public CudaMemoryKind kind() {
    return kind;
  }

  /** Which allocation of which process. */
  public CudaAllocation.Id id() {
    return id;
  }

  /** Its length in bytes. */
  public long size() {
    return size;
  }

  /** The GPU it is on, as the operating system writes it: {@code 0000:3b:00.0}. */
  public String pciBusId() {
    return pciBusId;
  }

  /** The driver's IPC handle; plain memory only. */
  byte[] handle() {
    return secret.clone();
  }

  /** The owner's abstract socket, without the leading zero; VMM only. */
  String socket() {
    return socket;
  }

  /** What the owner's socket wants to see; VMM only. */
  byte[] token() {
    return secret.clone();
  }

  /** This name as bytes, at most {@link #MAX_ENCODED_LENGTH}. */
  public byte[] encode() {
    ByteBuffer out = ByteBuffer.allocate(MAX_ENCODED_LENGTH).order(ByteOrder.LITTLE_ENDIAN);
    out.putInt(MAGIC).putShort(VERSION).putShort((short) kind.ordinal());
    out.putLong(id.process()).putLong(id.number()).putLong(size);
    put(out, pciBusId);
    if (kind == CudaMemoryKind.VMM) {
      put(out, socket);
    }
    out.put(secret);
    return Arrays.copyOf(out.array(), out.position());
  }

  private static void put(ByteBuffer out, String text) {
    byte[] bytes = text.getBytes(StandardCharsets.US_ASCII);
    out.put((byte) bytes.length).put(bytes);
  }

  /**
   * Reads a name, trusting nothing.
   *
   * @param bytes what arrived
   * @return the name
   * @throws InvalidUsage if the bytes are no name; the message says which field is wrong
   */
  public static CudaMemoryName decode(byte[] bytes) {
    check(bytes.length <= MAX_ENCODED_LENGTH, "length", bytes.length);
    ByteBuffer in = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN);
    try {
      int magic = in.getInt();
      check(magic == MAGIC, "magic", magic);
      short version = in.getShort();
      check(version == VERSION, "version", version);
      short ordinal = in.getShort();
      check(ordinal >= 0 && ordinal < KINDS.length, "kind", ordinal);
      CudaMemoryKind kind = KINDS[ordinal];
      CudaAllocation.Id id = new CudaAllocation.Id(in.getLong(), in.getLong());
      long size = in.getLong();
      String pciBusId = text(in);
      String socket = kind == CudaMemoryKind.VMM ? text(in) : "";
      byte[] secret = new byte[kind == CudaMemoryKind.VMM ? TOKEN_LENGTH : HANDLE_LENGTH];
      in.get(secret);
      check(!in.hasRemaining(), "trailing bytes", in.remaining());
      return new CudaMemoryName(kind, id, size, pciBusId, socket, secret);
    } catch (BufferUnderflowException e) {
      throw malformed("length", bytes.length);
    }
  }

  private static String text(ByteBuffer in) {
    byte length = in.get();
    check(length >= 0, "text length", length);
    byte[] bytes = new byte[length];
    in.get(bytes);
    // One char a byte: what is no ASCII fails the patterns.
    return new String(bytes, StandardCharsets.ISO_8859_1);
  }

  private static void check(boolean condition, String field, Object value) {
    if (!condition) {
      throw malformed(field, value);
    }
  }

  private static InvalidUsage malformed(String field, Object value) {
    return new InvalidUsage("name of GPU memory with " + field + "=" + value);
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

  /** Without what opens the memory. */
  @Override
  public String toString() {
    return kind
        + " memory "
        + id.number()
        + " of process "
        + HexFormat.of().toHexDigits(id.process())
        + ", "
        + size
        + " bytes on "
        + pciBusId;
  }
}
