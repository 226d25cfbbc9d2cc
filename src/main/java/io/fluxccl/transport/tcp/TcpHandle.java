// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.tcp;

import io.fluxccl.InvalidUsage;
import io.fluxccl.tls.Tls;
import io.fluxccl.wire.WireReader;
import io.fluxccl.wire.WireWriter;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.UnknownHostException;
import java.nio.ByteBuffer;
import java.util.Arrays;

/**
 * The address of a listener, and the token that proves that a socket knows it. On the wire,
 * little-endian: int64 magic, int32 port, int32 length of the address, 16 bytes address, 16 bytes
 * token, 32 bytes fingerprint of the certificate, all zero without TLS.
 *
 * @param address the address that the listener is bound to
 * @param token identifies the listener at that address
 * @param fingerprint of the listener's certificate, or null without TLS
 */
public record TcpHandle(InetSocketAddress address, byte[] token, byte[] fingerprint) {
  /** The length of a handle in bytes. */
  public static final int LENGTH = 48 + Tls.FINGERPRINT_LENGTH;

  /** The length of a token in bytes. */
  public static final int TOKEN_LENGTH = 16;

  private static final int IPV4_LENGTH = 4;
  private static final int IPV6_LENGTH = 16;
  private static final long MAGIC = 0x3244_4e41_4854_4e46L;
  private static final byte[] NO_FINGERPRINT = new byte[Tls.FINGERPRINT_LENGTH];

  /** Returns the handle as bytes. */
  public byte[] encode() {
    byte[] raw = address.getAddress().getAddress();
    return new WireWriter()
        .int64(MAGIC)
        .int32(address.getPort())
        .int32(raw.length)
        .raw(Arrays.copyOf(raw, IPV6_LENGTH))
        .raw(token)
        .raw(fingerprint == null ? NO_FINGERPRINT : fingerprint)
        .toBytes();
  }

  /**
   * Decodes the handle at the start of a buffer.
   *
   * @throws InvalidUsage if it is malformed
   */
  public static TcpHandle decode(ByteBuffer handle) {
    WireReader in = new WireReader(handle.duplicate().clear(), TcpHandle::malformed);
    in.int64("magic", MAGIC, MAGIC);
    int port = in.int32("port", 1, 0xffff);
    int length = in.int32("length");
    in.check(length == IPV4_LENGTH || length == IPV6_LENGTH, "length", "" + length);
    byte[] host = Arrays.copyOf(in.raw("address", IPV6_LENGTH), length);
    byte[] token = in.raw("token", TOKEN_LENGTH);
    byte[] fingerprint = in.raw("fingerprint", Tls.FINGERPRINT_LENGTH);
    boolean isSecured = !Arrays.equals(fingerprint, NO_FINGERPRINT);
    try {
      InetSocketAddress address = new InetSocketAddress(InetAddress.getByAddress(host), port);
      return new TcpHandle(address, token, isSecured ? fingerprint : null);
    } catch (UnknownHostException e) {
      throw malformed(e.getMessage());
    }
  }

  private static InvalidUsage malformed(String problem) {
    return new InvalidUsage("the handle is not of a TCP listener of FluxCCL: " + problem);
  }

  @Override
  public String toString() {
    return address.getAddress().getHostAddress() + ":" + address.getPort();
  }
}
