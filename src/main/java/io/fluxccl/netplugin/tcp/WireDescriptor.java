// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.tcp;

import io.fluxccl.ErrorCode;
import io.fluxccl.FluxCclException;
import io.fluxccl.transport.tcp.TcpHandle;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;

/**
 * The wire format of TCP connections; all numbers are little-endian.
 *
 * <pre>
 * handle    see {@link TcpHandle}
 * hello     magic 8, token 16, connection 8, stream 4, streams 4, name 64    each socket, sender first
 * welcome   magic 8, name 64                                                 stream 0, when all are connected
 * message   magic 4, tag 4, size 8, and if not spread: the bytes             stream 0, to the receiver
 * posted    magic 4, tag 4, receives with the tag so far 4                   stream 0, to the sender
 * error     magic 4, code 4, length 4, text                                  stream 0, to the sender
 * </pre>
 *
 * Stream 0 carries the messages in order. With n streams a message of {@link #SPREAD_FROM} bytes or
 * more is spread: streams 1 to n carry one part each, and nothing but parts, in the same order.
 */
final class WireDescriptor {
  static final int HELLO_LENGTH = 104;
  static final int WELCOME_LENGTH = 72;
  static final int HEADER_LENGTH = 16;
  static final int POSTED_LENGTH = 12;
  static final int MAX_ERROR_TEXT = 512;
  static final int ERROR_HEADER_LENGTH = 12;

  /**
   * The least size that is spread. Smaller messages use stream 0: posting them to a thread takes
   * longer.
   */
  static final int SPREAD_FROM = 64 * 1024;

  private static final int PART_ALIGNMENT = 4096;
  private static final int NAME_LENGTH = 64;
  static final long HELLO_MAGIC = 0x324f_4c4c_4548_4e46L;
  private static final long WELCOME_MAGIC = 0x3143_4c45_5748_4e46L;
  private static final int MESSAGE_MAGIC = 0x534d_4e46;
  private static final int POSTED_MAGIC = 0x5453_4f50;
  private static final int ERROR_MAGIC = 0x5245_4e46;

  private WireDescriptor() {}

  /**
   * The first message of a socket, which identifies the connection and stream that it belongs to.
   */
  record Hello(byte[] token, long connection, int stream, int streams, String name) {}

  static ByteBuffer buffer(int length) {
    return ByteBuffer.allocateDirect(length).order(ByteOrder.LITTLE_ENDIAN);
  }

  static void putHello(ByteBuffer out, Hello hello) {
    out.clear();
    out.putLong(HELLO_MAGIC).put(hello.token()).putLong(hello.connection());
    out.putInt(hello.stream()).putInt(hello.streams());
    putName(out, hello.name());
    out.flip();
  }

  /** Parses a whole hello whose magic number is right; returns null if it is malformed. */
  static Hello readHello(ByteBuffer in) {
    in.position(Long.BYTES);
    byte[] token = new byte[TcpHandle.TOKEN_LENGTH];
    in.get(token);
    long connection = in.getLong();
    int stream = in.getInt();
    int streams = in.getInt();
    if (streams < 1 || streams > TcpOptions.MAX_STREAMS || stream < 0) {
      return null;
    }
    return stream >= sockets(streams)
        ? null
        : new Hello(token, connection, stream, streams, readName(in));
  }

  static void putWelcome(ByteBuffer out, String name) {
    out.clear();
    out.putLong(WELCOME_MAGIC);
    putName(out, name);
    out.flip();
  }

  /** Returns the name in a full welcome, or null if the welcome is malformed. */
  static String readWelcome(ByteBuffer in) {
    in.flip();
    return in.getLong() == WELCOME_MAGIC ? readName(in) : null;
  }

  static void putHeader(ByteBuffer out, int offset, int tag, long size) {
    out.putInt(offset, MESSAGE_MAGIC);
    out.putInt(offset + 4, tag);
    out.putLong(offset + 8, size);
  }

  /** Returns the size of the message whose header is at the offset; -1 if it is malformed. */
  static long sizeAt(ByteBuffer in, int offset) {
    long size = in.getLong(offset + 8);
    return in.getInt(offset) == MESSAGE_MAGIC && size >= 0 ? size : -1;
  }

  static int tagAt(ByteBuffer in, int offset) {
    return in.getInt(offset + 4);
  }

  /** Adds a notice of the number of receives with a tag that were posted so far, modulo 2^32. */
  static void putPosted(ByteBuffer out, int tag, int count) {
    out.putInt(POSTED_MAGIC).putInt(tag).putInt(count);
  }

  /** Returns whether the bytes from the start on are a notice of receives, or its beginning. */
  static boolean isPostedAt(ByteBuffer in, int offset) {
    return in.position() - offset < Integer.BYTES || in.getInt(offset) == POSTED_MAGIC;
  }

  static int postedTagAt(ByteBuffer in, int offset) {
    return in.getInt(offset + 4);
  }

  static int postedCountAt(ByteBuffer in, int offset) {
    return in.getInt(offset + 8);
  }

  static ByteBuffer error(FluxCclException failure) {
    byte[] text = failure.getMessage().getBytes(StandardCharsets.UTF_8);
    int length = Math.min(text.length, MAX_ERROR_TEXT);
    ByteBuffer out = buffer(ERROR_HEADER_LENGTH + length);
    out.putInt(ERROR_MAGIC).putInt(failure.code().ordinal()).putInt(length);
    return out.put(text, 0, length).flip();
  }

  /** Returns the text of an error that has arrived completely or in part; never null. */
  static String readError(ByteBuffer in) {
    in.flip();
    if (in.remaining() < ERROR_HEADER_LENGTH || in.getInt() != ERROR_MAGIC) {
      return "what is no message";
    }
    int code = in.getInt();
    byte[] text = new byte[Math.max(0, Math.min(in.getInt(), in.remaining()))];
    in.get(text);
    String kind =
        code >= 0 && code < ErrorCode.values().length
            ? ErrorCode.values()[code].name()
            : "error " + code;
    return kind + ": " + new String(text, StandardCharsets.UTF_8);
  }

  /**
   * Returns the number of sockets of a connection: with more than one stream, one more for the
   * messages.
   */
  static int sockets(int streams) {
    return streams == 1 ? 1 : streams + 1;
  }

  /**
   * Returns the offset of a stream's part. Streams count from 0; the last part ends at the offset
   * of stream n.
   */
  static long partAt(long size, int streams, int stream) {
    long part = (size / streams + PART_ALIGNMENT) & -PART_ALIGNMENT;
    return stream == streams ? size : Math.min(size, stream * part);
  }

  /** Returns the host and process number of this process, for the peer's messages. */
  static String ownName() {
    return Name.OWN;
  }

  private static void putName(ByteBuffer out, String name) {
    byte[] bytes = name.getBytes(StandardCharsets.UTF_8);
    out.put(Arrays.copyOf(bytes, NAME_LENGTH));
  }

  private static String readName(ByteBuffer in) {
    byte[] name = new byte[NAME_LENGTH];
    in.get(name);
    int end = 0;
    while (end < NAME_LENGTH && name[end] != 0) {
      end++;
    }
    // The name is written to logs.
    return new String(name, 0, end, StandardCharsets.UTF_8).replaceAll("[^\\w.:-]", "_");
  }

  private static final class Name {
    private static final String OWN = hostName() + ":" + ProcessHandle.current().pid();

    private static String hostName() {
      try {
        return Files.readString(Path.of("/proc/sys/kernel/hostname")).trim();
      } catch (IOException e) {
        return "host";
      }
    }
  }
}
