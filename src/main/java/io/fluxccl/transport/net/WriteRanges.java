// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

/**
 * The ranges of memory that messages in a ring write. A message that writes nothing has an empty
 * range. Confined to the agent; allocates nothing.
 */
final class WriteRanges {
  private final int capacity;
  private final long[] starts;
  private final long[] ends;
  private final boolean[] onHost;

  WriteRanges(int capacity) {
    this.capacity = capacity;
    this.starts = new long[capacity];
    this.ends = new long[capacity];
    this.onHost = new boolean[capacity];
  }

  private int slot(long message) {
    return (int) (message % capacity);
  }

  /** Sets the range of a message that writes nothing. */
  void clear(long message) {
    set(message, 0, 0, false);
  }

  /**
   * Sets the range of a message.
   *
   * @param isOnHost whether this process stores to the memory
   */
  void set(long message, long start, long length, boolean isOnHost) {
    starts[slot(message)] = start;
    ends[slot(message)] = start + length;
    onHost[slot(message)] = isOnHost;
  }

  long start(long message) {
    return starts[slot(message)];
  }

  long length(long message) {
    return ends[slot(message)] - starts[slot(message)];
  }

  /**
   * Returns whether any message from {@code from} up to {@code to}, exclusive, writes to host
   * memory.
   */
  boolean isAnyOnHost(long from, long to) {
    for (long message = from; message < to; message++) {
      if (onHost[slot(message)]) {
        return true;
      }
    }
    return false;
  }

  /**
   * Returns whether a message from {@code from} on writes a byte that {@code message} writes too.
   */
  boolean overlapsEarlier(long from, long message) {
    long start = starts[slot(message)];
    long end = ends[slot(message)];
    for (long earlier = from; earlier < message; earlier++) {
      if (starts[slot(earlier)] < end && start < ends[slot(earlier)]) {
        return true;
      }
    }
    return false;
  }
}
