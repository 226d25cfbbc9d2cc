// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.host;

import io.fluxccl.DeviceFailure;
import io.fluxccl.Text;
import io.fluxccl.TransportFailure;
import io.fluxccl.device.host.HostMemory;
import io.fluxccl.device.host.SegmentName;
import io.fluxccl.device.host.SharedSegment;

/**
 * One worker's cache of segments that are not registered: its own segments, as last used in calls
 * with one peer, and the peer's segments that it has mapped. Both keep the latest {@value
 * #CAPACITY}. A rank offers a segment to a peer only at its second use, because mapping it costs
 * more than one transfer through the pipe.
 *
 * <p>Mapped segments stay mapped for the next call, until their owner has closed them and offers
 * another. Used by one thread at a time.
 */
final class SegmentCache {
  static final int CAPACITY = 8;

  private final int peer;
  private final boolean sameProcess;
  private final SegmentName[] own = new SegmentName[CAPACITY];
  private int nextOwn;

  /** Each retained here, but for those of this process, which their owner may free meanwhile. */
  final SharedSegment[] mapped = new SharedSegment[CAPACITY];

  private final long[] usedAt = new long[CAPACITY];
  private long uses;

  /** Creates an empty cache for a peer, which may be a rank of the same process. */
  SegmentCache(int peer, boolean sameProcess) {
    this.peer = peer;
    this.sameProcess = sameProcess;
  }

  /** Returns whether an own segment was used before, and remembers it from now on. */
  boolean isReused(SegmentName name) {
    for (SegmentName each : own) {
      if (name.equals(each)) {
        return true;
      }
    }
    own[nextOwn] = name;
    nextOwn = (nextOwn + 1) % own.length;
    return false;
  }

  /**
   * Maps the peer's segment that a reference is in.
   *
   * @param bytes that the caller will access
   * @return the segment, retained once more for the caller
   * @throws TransportFailure if the peer's segment has fewer bytes or can't be mapped, or the peer
   *     has closed it
   */
  SharedSegment use(SegmentReference reference, long bytes) {
    if (!reference.holds(bytes)) {
      throw TransportFailure.of(
          peer, "accessing %d bytes from %s of rank %d: out of bounds", bytes, reference, peer);
    }
    SharedSegment segment = find(reference);
    if (!segment.tryRetain()) {
      throw closed();
    }
    return segment;
  }

  private TransportFailure closed() {
    return new TransportFailure(peer, "rank " + peer + " has closed a buffer that is in use");
  }

  private SharedSegment find(SegmentReference reference) {
    int oldest = 0;
    for (int i = 0; i < CAPACITY; i++) {
      SharedSegment segment = mapped[i];
      if (segment != null && reference.liesIn(segment.name()) && segment.users() > 0) {
        usedAt[i] = ++uses;
        return segment;
      }
      if (usedAt[i] < usedAt[oldest]) {
        oldest = i;
      }
    }
    SharedSegment segment = open(reference);
    evict(oldest);
    mapped[oldest] = segment;
    usedAt[oldest] = ++uses;
    return segment;
  }

  private SharedSegment open(SegmentReference reference) {
    if (sameProcess) {
      SharedSegment segment = SharedSegment.retainOwned(reference.name()).orElseThrow(this::closed);
      segment.release();
      return segment;
    }
    for (int i = 0; i < CAPACITY; i++) {
      if (mapped[i] != null && !SharedSegment.isOpen(mapped[i].name())) {
        evict(i);
      }
    }
    // A mapped file keeps its inode: a name never means two segments here.
    try {
      return SharedSegment.open(reference.name());
    } catch (DeviceFailure e) {
      // If the peer has died, its death becomes the reason on all ranks.
      throw new TransportFailure(peer, "memory of rank " + peer + ": " + e.getMessage(), e);
    }
  }

  private void evict(int i) {
    if (mapped[i] != null && !sameProcess) {
      mapped[i].release();
    }
    mapped[i] = null;
    usedAt[i] = 0;
  }

  /** Unmaps all segments. */
  void close() {
    for (int i = 0; i < CAPACITY; i++) {
      evict(i);
    }
  }

  /**
   * The place of a buffer that is not registered: the parts of its segment's name, and the offset
   * in the segment. Mutable, so that filling one allocates nothing.
   */
  static final class SegmentReference {
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
}
