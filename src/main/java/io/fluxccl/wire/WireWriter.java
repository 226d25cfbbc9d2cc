// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.wire;

import io.fluxccl.InvalidUsage;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;

/**
 * Writes a message field by field, little-endian, into an array that grows. {@link WireReader}
 * reads the fields back in the same order. For set-up messages, not for hot paths. Not thread-safe.
 */
public final class WireWriter {
  private ByteBuffer out = ByteBuffer.allocate(128).order(ByteOrder.LITTLE_ENDIAN);

  /** Creates an empty message. */
  public WireWriter() {}

  /**
   * Begins a message with the number of its format and its version.
   *
   * @param magic 32 bits that no other format has
   * @param version 0 to 65535
   * @return this
   */
  public WireWriter header(int magic, int version) {
    return int32(magic).uint16(version);
  }

  /** Writes one byte, 0 to 255. */
  public WireWriter uint8(int value) {
    checkRange("uint8", value, 0xff);
    room(1).put((byte) value);
    return this;
  }

  /** Writes two bytes, 0 to 65535. */
  public WireWriter uint16(int value) {
    checkRange("uint16", value, 0xffff);
    room(2).putShort((short) value);
    return this;
  }

  /** Writes four bytes. */
  public WireWriter int32(int value) {
    room(4).putInt(value);
    return this;
  }

  /** Writes eight bytes. */
  public WireWriter int64(long value) {
    room(8).putLong(value);
    return this;
  }

  /** Writes one byte, 0 or 1. */
  public WireWriter bool(boolean value) {
    return uint8(value ? 1 : 0);
  }

  /** Writes bytes without their length, which the reader must know. */
  public WireWriter raw(byte[] bytes) {
    room(bytes.length).put(bytes);
    return this;
  }

  /** Writes the length of bytes (32 bits), and then the bytes. */
  public WireWriter bytes(byte[] bytes) {
    return int32(bytes.length).raw(bytes);
  }

  /** Writes the length of a string in UTF-8 bytes (32 bits), and then the string. */
  public WireWriter string(String text) {
    return bytes(text.getBytes(StandardCharsets.UTF_8));
  }

  /** Returns the message so far, as a new array. */
  public byte[] toBytes() {
    return Arrays.copyOf(out.array(), out.position());
  }

  private static void checkRange(String field, int value, int largest) {
    if (value < 0 || value > largest) {
      throw InvalidUsage.of("%s=%s is outside 0..%s", field, value, largest);
    }
  }

  private ByteBuffer room(int length) {
    if (out.remaining() < length) {
      int capacity = Math.max(2 * out.capacity(), out.position() + length);
      out =
          ByteBuffer.allocate(capacity)
              .order(ByteOrder.LITTLE_ENDIAN)
              .put(out.array(), 0, out.position());
    }
    return out;
  }
}
