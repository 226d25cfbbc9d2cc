// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.host;

import io.fluxccl.Experimental;
import io.fluxccl.InvalidUsage;
import io.fluxccl.wire.WireReader;
import io.fluxccl.wire.WireWriter;

/**
 * The name by which another process of this host finds a {@link SharedSegment}: the owner's
 * descriptor, and the attributes that its file must have. Little-endian:
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
@Experimental
public record SegmentName(long pid, int descriptor, long inode, long device, long size) {
  /** Bytes of an encoded name. */
  public static final int ENCODED_LENGTH = 48;

  private static final int MAGIC = 0x47535846;
  private static final int VERSION = 1;

  /** Refuses values that cannot name a segment. */
  public SegmentName {
    check(pid > 0, "pid", pid);
    check(descriptor >= 0, "descriptor", descriptor);
    check(size > 0 && size <= SharedSegment.MAX_SIZE, "size", size);
  }

  /** Returns this name as {@link #ENCODED_LENGTH} bytes. */
  public byte[] encode() {
    return new WireWriter()
        .header(MAGIC, VERSION)
        .uint16(0)
        .int64(pid)
        .int32(descriptor)
        .int32(0)
        .int64(inode)
        .int64(device)
        .int64(size)
        .toBytes();
  }

  /**
   * Reads a name and validates every field.
   *
   * @param bytes the received bytes
   * @return the name
   * @throws InvalidUsage if the bytes are no name; the message names the invalid field
   */
  public static SegmentName decode(byte[] bytes) {
    WireReader in =
        new WireReader(bytes, problem -> InvalidUsage.of("segment name with %s", problem))
            .header(MAGIC, VERSION);
    in.check(in.uint16("padding") == 0, "padding", "other than 0");
    long pid = in.int64("pid");
    int descriptor = in.int32("descriptor");
    in.int32("padding", 0, 0);
    SegmentName name =
        new SegmentName(pid, descriptor, in.int64("inode"), in.int64("device"), in.int64("size"));
    in.end();
    return name;
  }

  private static void check(boolean condition, String field, long value) {
    if (!condition) {
      throw InvalidUsage.of("segment name with %s=%s", field, value);
    }
  }
}
