// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import io.fluxccl.InvalidUsage;
import io.fluxccl.Text;
import io.fluxccl.wire.WireReader;
import io.fluxccl.wire.WireWriter;
import java.net.Inet6Address;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.UnknownHostException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.security.MessageDigest;
import java.util.Arrays;
import java.util.Base64;
import java.util.zip.CRC32;

/**
 * All that a process needs to join a job, in 128 bytes: the address of the root and the job's
 * secret. One process creates it by {@link #create()} and hosts the root from then on; the user
 * carries it to the other processes by any means that keeps secrets. Immutable.
 *
 * <p>Layout, little endian: magic@0 (4 bytes), version@4 (2), address length@6 (1), address (4 or
 * 16), scope (4), port (2), secret (32), zeros, CRC-32 of all before it@124 (4).
 */
public final class UniqueId {
  /** The length in bytes. */
  public static final int LENGTH = 128;

  static final int SECRET_LENGTH = 32;

  private static final int MAGIC = 0x464C5558;
  private static final int VERSION = 2;
  private static final int CHECKSUM_OFFSET = 124;

  private final byte[] bytes;
  private final InetSocketAddress address;
  private final byte[] secret;

  private UniqueId(byte[] bytes, InetSocketAddress address, byte[] secret) {
    this.bytes = bytes;
    this.address = address;
    this.secret = secret;
  }

  /**
   * Opens a root in this process, with options from the environment, and returns the id by which to
   * join it; see {@link TcpBootstrap#createUniqueId}.
   */
  public static UniqueId create() {
    return TcpBootstrap.createUniqueId(BootstrapOptions.defaults());
  }

  static UniqueId of(InetSocketAddress address, byte[] secret) {
    WireWriter fields = new WireWriter().header(MAGIC, VERSION);
    writeAddress(fields, address);
    byte[] bytes = Arrays.copyOf(fields.raw(secret).toBytes(), LENGTH);
    checksumOf(bytes).putInt(CHECKSUM_OFFSET, checksum(bytes));
    return new UniqueId(bytes, address, secret.clone());
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
    byte[] copy = bytes.clone();
    WireReader fields = new WireReader(copy, UniqueId::refused).header(MAGIC, VERSION);
    fields.check(
        checksumOf(copy).getInt(CHECKSUM_OFFSET) == checksum(copy),
        "checksum",
        "wrong; was the id cut or changed?");
    InetSocketAddress address = readAddress(fields);
    return new UniqueId(copy, address, fields.raw("secret", SECRET_LENGTH));
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

  /** Returns the id, secret included. */
  public byte[] toBytes() {
    return bytes.clone();
  }

  /** Returns the id, secret included, as text for an environment variable. */
  public String toBase64() {
    return Base64.getEncoder().encodeToString(bytes);
  }

  /** Returns the address at which the root listens. */
  public InetSocketAddress address() {
    return address;
  }

  byte[] secret() {
    return secret.clone();
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

  /** Writes the address and port at which a socket listens. */
  static void writeAddress(WireWriter out, InetSocketAddress address) {
    InetAddress host = address.getAddress();
    int scope = host instanceof Inet6Address ? ((Inet6Address) host).getScopeId() : 0;
    byte[] ip = host.getAddress();
    out.uint8(ip.length).raw(ip).int32(scope).uint16(address.getPort());
  }

  /** Reads what {@link #writeAddress} wrote, and refuses the port 0. */
  static InetSocketAddress readAddress(WireReader in) {
    InetSocketAddress address = readAnyAddress(in);
    in.check(address.getPort() > 0, "port", "0");
    return address;
  }

  /** Reads what {@link #writeAddress} wrote. */
  static InetSocketAddress readAnyAddress(WireReader in) {
    int length = in.uint8("addressLength");
    if (length != 4 && length != 16) {
      in.check(false, "addressLength", length + ", expected 4 or 16");
    }
    byte[] ip = in.raw("address", length);
    int scope = in.int32("scope", 0, Integer.MAX_VALUE);
    int port = in.uint16("port");
    return new InetSocketAddress(addressOf(ip, scope), port);
  }

  private static ByteBuffer checksumOf(byte[] bytes) {
    return ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN);
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

  /** Returns the address and a fingerprint; nothing of the secret. */
  @Override
  public String toString() {
    return Text.of(
        "UniqueId(%s:%d, fingerprint=%08x)",
        address.getAddress().getHostAddress(),
        address.getPort(),
        HostIdentity.sha256(bytes).getInt());
  }
}
