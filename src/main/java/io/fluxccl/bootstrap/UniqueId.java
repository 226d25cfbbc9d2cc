package io.fluxccl.bootstrap;

import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import java.net.Inet6Address;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.UnknownHostException;
import java.nio.ByteBuffer;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.Arrays;
import java.util.Base64;
import java.util.zip.CRC32;

/**
 * All that a process needs to join a job, in 128 bytes: where the root listens and the job's
 * secret. Made by one process, {@link #create()}, which hosts the root from then on, and carried to
 * the others by any means that keeps secrets. Immutable.
 *
 * <p>Layout, big endian: magic@0 (4 bytes), version@4, address length@5, port@6 (2), address@8
 * (16), scope@24 (4), zero@28 (4), secret@32 (32), zero@64 (60), CRC-32 of all before it@124 (4).
 */
public final class UniqueId {
  /** The length in bytes. */
  public static final int LENGTH = 128;

  static final int SECRET_LENGTH = 32;

  private static final int MAGIC = 0x464C5558;
  private static final byte VERSION = 1;
  private static final int ADDRESS_OFFSET = 8;
  private static final int SCOPE_OFFSET = 24;
  private static final int SECRET_OFFSET = 32;
  private static final int CHECKSUM_OFFSET = 124;

  private final byte[] bytes;
  private final InetSocketAddress address;

  private UniqueId(byte[] bytes, InetSocketAddress address) {
    this.bytes = bytes;
    this.address = address;
  }

  /**
   * Opens a root in this process, with options from the environment, and gives the id by which to
   * join it. The same as {@link TcpBootstrap#createUniqueId}.
   */
  public static UniqueId create() {
    return TcpBootstrap.createUniqueId(BootstrapOptions.defaults());
  }

  static UniqueId of(InetSocketAddress address, byte[] secret) {
    byte[] ip = address.getAddress().getAddress();
    byte[] bytes = new byte[LENGTH];
    ByteBuffer buffer = ByteBuffer.wrap(bytes);
    buffer.putInt(MAGIC).put(VERSION).put((byte) ip.length).putShort((short) address.getPort());
    buffer.put(ADDRESS_OFFSET, ip);
    buffer.putInt(SCOPE_OFFSET, scopeOf(address.getAddress()));
    buffer.put(SECRET_OFFSET, secret, 0, SECRET_LENGTH);
    buffer.putInt(CHECKSUM_OFFSET, checksum(bytes));
    return new UniqueId(bytes, address);
  }

  /**
   * Reads an id.
   *
   * @param bytes 128 bytes that {@link #toBytes()} gave; copied
   * @return the id
   * @throws InvalidUsage if they are no id
   */
  public static UniqueId fromBytes(byte[] bytes) {
    if (bytes == null || bytes.length != LENGTH) {
      throw refused("length=" + (bytes == null ? 0 : bytes.length) + " is not " + LENGTH);
    }
    ByteBuffer buffer = ByteBuffer.wrap(bytes.clone());
    if (buffer.getInt(0) != MAGIC) {
      throw refused("it does not begin as one");
    }
    if (buffer.get(4) != VERSION) {
      throw refused("version=" + buffer.get(4) + "; this library knows " + VERSION);
    }
    if (buffer.getInt(CHECKSUM_OFFSET) != checksum(buffer.array())) {
      throw refused("its checksum is wrong; was it cut or changed on the way?");
    }
    int length = buffer.get(5);
    int port = Short.toUnsignedInt(buffer.getShort(6));
    if ((length != 4 && length != 16) || port == 0) {
      throw refused("addressLength=" + length + ", port=" + port);
    }
    byte[] ip = Arrays.copyOfRange(buffer.array(), ADDRESS_OFFSET, ADDRESS_OFFSET + length);
    return new UniqueId(
        buffer.array(), new InetSocketAddress(addressOf(ip, buffer.getInt(SCOPE_OFFSET)), port));
  }

  /**
   * Reads an id as text.
   *
   * @param text what {@link #toBase64()} gave
   * @return the id
   * @throws InvalidUsage if it is no id
   */
  public static UniqueId fromBase64(String text) {
    if (text == null || text.length() > 2 * LENGTH) {
      throw refused("length=" + (text == null ? 0 : text.length()) + " as text");
    }
    try {
      return fromBytes(Base64.getDecoder().decode(text.strip()));
    } catch (IllegalArgumentException e) {
      throw new InvalidUsage("unique id: it is not base64", e);
    }
  }

  /** The id, secret included. */
  public byte[] toBytes() {
    return bytes.clone();
  }

  /** The id, secret included, as text for an environment variable. */
  public String toBase64() {
    return Base64.getEncoder().encodeToString(bytes);
  }

  /** Where the root listens. */
  public InetSocketAddress address() {
    return address;
  }

  byte[] secret() {
    return Arrays.copyOfRange(bytes, SECRET_OFFSET, SECRET_OFFSET + SECRET_LENGTH);
  }

  static InetAddress addressOf(byte[] ip, int scope) {
    try {
      return ip.length == 16 && scope != 0
          ? Inet6Address.getByAddress(null, ip, scope)
          : InetAddress.getByAddress(ip);
    } catch (UnknownHostException e) {
      throw new InvalidUsage("addressLength=" + ip.length + " is neither 4 nor 16", e);
    }
  }

  static int scopeOf(InetAddress address) {
    return address instanceof Inet6Address ? ((Inet6Address) address).getScopeId() : 0;
  }

  private static int checksum(byte[] bytes) {
    CRC32 checksum = new CRC32();
    checksum.update(bytes, 0, CHECKSUM_OFFSET);
    return (int) checksum.getValue();
  }

  private static InvalidUsage refused(String why) {
    return new InvalidUsage("unique id: " + why);
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof UniqueId && MessageDigest.isEqual(bytes, ((UniqueId) other).bytes);
  }

  @Override
  public int hashCode() {
    return Arrays.hashCode(bytes);
  }

  /** The address and a fingerprint; nothing of the secret. */
  @Override
  public String toString() {
    try {
      byte[] digest = MessageDigest.getInstance("SHA-256").digest(bytes);
      return String.format(
          "UniqueId(%s:%d, fingerprint=%08x)",
          address.getAddress().getHostAddress(),
          address.getPort(),
          ByteBuffer.wrap(digest).getInt());
    } catch (NoSuchAlgorithmException e) {
      throw FluxCclException.from(e);
    }
  }
}
