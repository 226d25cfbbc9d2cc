package io.fluxccl.device.host;

import io.fluxccl.InvalidUsage;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/**
 * How another process of this host finds a {@link SharedSegment}: the owner's descriptor, and what
 * the file behind it must be. Little-endian:
 *
 * <pre>
 *   int32 magic "FXSG"   int16 version (1)   int16 zero
 *   int64 process id   int32 descriptor   int32 zero
 *   int64 inode   int64 device   int64 size
 * </pre>
 *
 * @param pid the owner's process id
 * @param descriptor the number of its open file
 * @param inode the file's inode
 * @param device the file system's device number
 * @param size bytes
 */
public record SegmentName(long pid, int descriptor, long inode, long device, long size) {
  /** Bytes of an encoded name. */
  public static final int ENCODED_LENGTH = 48;

  private static final int MAGIC = 0x47535846;
  private static final short VERSION = 1;

  /** Refuses what can name no segment. */
  public SegmentName {
    check(pid > 0, "pid", pid);
    check(descriptor >= 0, "descriptor", descriptor);
    check(size > 0 && size <= SharedSegment.MAX_SIZE, "size", size);
  }

  /** This name as {@link #ENCODED_LENGTH} bytes. */
  public byte[] encode() {
    return ByteBuffer.allocate(ENCODED_LENGTH)
        .order(ByteOrder.LITTLE_ENDIAN)
        .putInt(MAGIC)
        .putShort(VERSION)
        .putShort((short) 0)
        .putLong(pid)
        .putInt(descriptor)
        .putInt(0)
        .putLong(inode)
        .putLong(device)
        .putLong(size)
        .array();
  }

  /**
   * Reads a name, trusting nothing.
   *
   * @param bytes what arrived
   * @return the name
   * @throws InvalidUsage if the bytes are no name; the message says which field is wrong
   */
  public static SegmentName decode(byte[] bytes) {
    if (bytes.length != ENCODED_LENGTH) {
      throw new InvalidUsage(
          "segment name of " + bytes.length + " bytes; it has " + ENCODED_LENGTH);
    }
    ByteBuffer in = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN);
    int magic = in.getInt();
    check(magic == MAGIC, "magic", magic);
    short version = in.getShort();
    check(version == VERSION, "version", version);
    short firstPadding = in.getShort();
    check(firstPadding == 0, "padding", firstPadding);
    long pid = in.getLong();
    int descriptor = in.getInt();
    int secondPadding = in.getInt();
    check(secondPadding == 0, "padding", secondPadding);
    return new SegmentName(pid, descriptor, in.getLong(), in.getLong(), in.getLong());
  }

  private static void check(boolean condition, String field, long value) {
    if (!condition) {
      throw new InvalidUsage("segment name with " + field + "=" + value);
    }
  }
}
