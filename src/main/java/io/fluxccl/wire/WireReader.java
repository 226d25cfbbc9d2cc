// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.wire;

import io.fluxccl.FluxCclException;
import io.fluxccl.Text;
import io.fluxccl.TransportFailure;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.function.Function;

/**
 * Reads a message that {@link WireWriter} wrote, and validates it: each field is checked against
 * the end of the message and its own limits before memory is allocated. The first problem throws an
 * error, which the function of the reader's creator makes. Not thread-safe.
 */
public final class WireReader {
  private final ByteBuffer in;
  private final Function<String, FluxCclException> malformed;

  /**
   * Creates a reader at the first byte.
   *
   * @param bytes the message; not copied
   * @param malformed makes the error of a problem such as {@code "version=3, expected 1"}; it adds
   *     the source of the message
   */
  public WireReader(byte[] bytes, Function<String, FluxCclException> malformed) {
    this(ByteBuffer.wrap(bytes), malformed);
  }

  /**
   * Returns a reader of a peer's message. Its first problem throws a {@link TransportFailure} that
   * names the peer.
   *
   * @param bytes the message; not copied
   * @param what the message is, for example {@code RDMA endpoint}
   * @param rank the peer that sent it
   */
  public static WireReader ofPeer(byte[] bytes, String what, int rank) {
    String format = "the %s that rank %s sent is malformed: %s";
    return new WireReader(bytes, problem -> TransportFailure.of(rank, format, what, rank, problem));
  }

  /** Creates a reader of the bytes between position and limit; the buffer's position stays. */
  public WireReader(ByteBuffer bytes, Function<String, FluxCclException> malformed) {
    this.in = bytes.slice().order(ByteOrder.LITTLE_ENDIAN);
    this.malformed = malformed;
  }

  /**
   * Reads the header of {@link WireWriter#header} and refuses another format or version.
   *
   * @return this
   */
  public WireReader header(int magic, int version) {
    int actualMagic = int32("magic");
    check(actualMagic == magic, "magic", Text.of("%08x, expected %08x", actualMagic, magic));
    int actual = uint16("version");
    check(actual == version, "version", actual + ", expected " + version);
    return this;
  }

  /** Reads one byte, 0 to 255. */
  public int uint8(String field) {
    return need(1, field).get() & 0xff;
  }

  /** Reads two bytes, 0 to 65535. */
  public int uint16(String field) {
    return need(2, field).getShort() & 0xffff;
  }

  /** Reads four bytes. */
  public int int32(String field) {
    return need(4, field).getInt();
  }

  /** Reads four bytes and refuses a value outside the given range, both ends included. */
  public int int32(String field, int least, int most) {
    int value = int32(field);
    if (value < least || value > most) {
      check(false, field, value + ", expected " + least + ".." + most);
    }
    return value;
  }

  /** Reads eight bytes. */
  public long int64(String field) {
    return need(8, field).getLong();
  }

  /** Reads eight bytes and refuses a value outside the given range, both ends included. */
  public long int64(String field, long least, long most) {
    long value = int64(field);
    if (value < least || value > most) {
      check(false, field, value + ", expected " + least + ".." + most);
    }
    return value;
  }

  /** Reads one byte and refuses any but 0 and 1. */
  public boolean bool(String field) {
    int value = uint8(field);
    check(value <= 1, field, value + ", expected 0 or 1");
    return value == 1;
  }

  /** Reads exactly {@code length} bytes. */
  public byte[] raw(String field, int length) {
    need(length, field);
    byte[] bytes = new byte[length];
    in.get(bytes);
    return bytes;
  }

  /** Reads a length and then that number of bytes; refuses a length above {@code most}. */
  public byte[] bytes(String field, int most) {
    int length = int32(field);
    if (length < 0 || length > most) {
      check(false, field, "length " + length + ", expected at most " + most);
    }
    return raw(field, length);
  }

  /**
   * Reads a length and then a string of that number of bytes; refuses a length above {@code
   * mostBytes}.
   */
  public String string(String field, int mostBytes) {
    return new String(bytes(field, mostBytes), StandardCharsets.UTF_8);
  }

  /** Returns the number of bytes left. */
  public int remaining() {
    return in.remaining();
  }

  /** Refuses bytes after the last field. */
  public void end() {
    check(!in.hasRemaining(), "end", in.remaining() + " bytes too many");
  }

  /**
   * Refuses the message unless a condition of its format holds.
   *
   * @param field that is wrong
   * @param found the value found, and the expected one
   */
  public void check(boolean condition, String field, String found) {
    if (!condition) {
      throw malformed.apply(field + "=" + found);
    }
  }

  private ByteBuffer need(int length, String field) {
    if (length < 0 || in.remaining() < length) {
      throw malformed.apply(
          Text.of(
              "%s needs %s bytes, but the message of %s bytes has %s left",
              field, length, in.capacity(), in.remaining()));
    }
    return in;
  }
}
