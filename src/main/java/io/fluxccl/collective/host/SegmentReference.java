// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.host;

import io.fluxccl.Text;
import io.fluxccl.device.host.HostMemory;
import io.fluxccl.device.host.SegmentName;

/**
 * The place of a buffer that is not registered: the parts of its segment's name, and the offset in
 * the segment. Mutable, so that filling one allocates nothing.
 */
final class SegmentReference {
  /** Bytes of an encoded reference. */
  static final int LENGTH = 48;

  private static final int PID_OFFSET = 0;
  private static final int INODE_OFFSET = 8;
  private static final int DEVICE_OFFSET = 16;
  private static final int SIZE_OFFSET = 24;
  private static final int DESCRIPTOR_OFFSET = 32;
  private static final int OFFSET_OFFSET = 40;

  private boolean present;
  private long pid;
  private long inode;
  private long device;
  private long size;
  private int descriptor;
  private long offset;

  boolean isPresent() {
    return present;
  }

  void clear() {
    present = false;
  }

  /** Refers to the place {@code newOffset} bytes after the segment's start. */
  void set(SegmentName name, long newOffset) {
    present = true;
    pid = name.pid();
    inode = name.inode();
    device = name.device();
    size = name.size();
    descriptor = name.descriptor();
    offset = newOffset;
  }

  void write(long to) {
    HostMemory.putLong(to + PID_OFFSET, pid);
    HostMemory.putLong(to + INODE_OFFSET, inode);
    HostMemory.putLong(to + DEVICE_OFFSET, device);
    HostMemory.putLong(to + SIZE_OFFSET, size);
    HostMemory.putInt(to + DESCRIPTOR_OFFSET, descriptor);
    HostMemory.putLong(to + OFFSET_OFFSET, offset);
  }

  void read(long from) {
    present = true;
    pid = HostMemory.getLong(from + PID_OFFSET);
    inode = HostMemory.getLong(from + INODE_OFFSET);
    device = HostMemory.getLong(from + DEVICE_OFFSET);
    size = HostMemory.getLong(from + SIZE_OFFSET);
    descriptor = HostMemory.getInt(from + DESCRIPTOR_OFFSET);
    offset = HostMemory.getLong(from + OFFSET_OFFSET);
  }

  /** Returns whether {@code bytes} bytes from the offset on lie within the segment. */
  boolean holds(long bytes) {
    return offset >= 0 && offset <= size && bytes <= size - offset;
  }

  boolean liesIn(SegmentName name) {
    return inode == name.inode()
        && device == name.device()
        && pid == name.pid()
        && descriptor == name.descriptor()
        && size == name.size();
  }

  SegmentName name() {
    return new SegmentName(pid, descriptor, inode, device, size);
  }

  /** Returns the offset in the segment. */
  long offset() {
    return offset;
  }

  @Override
  public String toString() {
    return Text.of("offset %d of %d bytes", offset, size);
  }
}
