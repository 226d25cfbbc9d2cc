// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.tcp;

import io.fluxccl.wire.RawView;
import java.io.IOException;
import java.nio.ByteBuffer;
import org.agrona.BufferUtil;
import org.agrona.UnsafeApi;

/**
 * Gathers ranges of memory that one system call writes to a socket. Short ranges are copied to a
 * staging buffer: a copy takes less time than one more range of a system call. Used by one thread;
 * allocates nothing.
 */
public final class TcpWrites {
  private static final int RANGES = 24;
  private static final int RANGES_PER_MESSAGE = 2;

  /**
   * The most bytes of a range; a system call with as many takes no further message. With more,
   * later bytes evict earlier ones from the receiver's cache.
   */
  private static final long BYTES_AT_ONCE = 512 << 10;

  /** The most bytes of a range that is copied to the staging buffer. */
  private static final long SHORT = 512;

  private static final int STAGING_LENGTH = 16 * 1024;

  private final ByteBuffer staging = ByteBuffer.allocateDirect(STAGING_LENGTH);
  private final long stagingAddress = BufferUtil.address(staging);
  private final RawView[] views = new RawView[RANGES];
  private final ByteBuffer[] ranges = new ByteBuffer[RANGES];
  private int count;
  private long planned;

  /** The bytes in the staging buffer, and whether the last range ends at their end. */
  private int staged;

  private boolean lastIsStaged;

  /** Creates an object without ranges. */
  public TcpWrites() {
    for (int i = 0; i < RANGES; i++) {
      views[i] = new RawView();
      ranges[i] = views[i].buffer();
    }
  }

  /** Forgets all ranges. */
  public void clear() {
    count = 0;
    planned = 0;
    staged = 0;
    lastIsStaged = false;
  }

  /** Returns whether the ranges of another message, at most two, can be added. */
  public boolean hasRoom() {
    return count <= RANGES - RANGES_PER_MESSAGE && planned < BYTES_AT_ONCE;
  }

  /** Adds the bytes of a range, without the first {@code done} of them if that is positive. */
  public void add(long address, long length, long done) {
    long skipped = Math.max(0, done);
    if (skipped >= length) {
      return;
    }
    long left = Math.min(length - skipped, BYTES_AT_ONCE);
    planned += left;
    if (left > Math.min(SHORT, STAGING_LENGTH - staged)) {
      lastIsStaged = false;
      views[count++].point(address + skipped, left);
      return;
    }
    UnsafeApi.copyMemory(address + skipped, stagingAddress + staged, left);
    if (lastIsStaged) {
      ByteBuffer last = ranges[count - 1];
      last.limit(last.limit() + (int) left);
    } else {
      views[count++].point(stagingAddress + staged, left);
    }
    staged += (int) left;
    lastIsStaged = true;
  }

  /** Returns the number of bytes of all ranges. */
  public long planned() {
    return planned;
  }

  /** Writes as many bytes as the socket takes now, and returns their number. */
  public long write(TcpSocket socket) throws IOException {
    return count == 1 ? socket.write(ranges[0]) : socket.write(ranges, count);
  }
}
