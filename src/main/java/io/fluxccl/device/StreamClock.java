// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device;

import io.fluxccl.Experimental;

/**
 * Tells when a stream got to points of its work, by the device's own clock. For looking at a
 * program, not for its hot path: a mark costs a call of the driver. Any thread, one at a time.
 */
@Experimental
public interface StreamClock extends AutoCloseable {
  /**
   * Enqueues a look at the device's clock, behind all work enqueued before.
   *
   * @param point its number; used again only when nobody asks for the last time any more
   */
  void mark(int point);

  /**
   * Returns the times of two points that the stream has passed, the second one behind the first.
   *
   * @param seenNs {@link System#nanoTime} when it was seen that the second was passed
   * @param times gets both times in ns of {@link System#nanoTime}: the time between them is the
   *     device's; both lie between the enqueueing of the first and {@code seenNs}
   * @return whether they are known; false if the device has failed
   */
  boolean read(int from, int to, long seenNs, long[] times);

  /** Frees what the device has of it. Idempotent; points that are enqueued stay. */
  @Override
  void close();
}
