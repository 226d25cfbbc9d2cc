// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device;

import io.fluxccl.Experimental;

/**
 * Measures when a stream reaches points of its work, by the device's clock. For profiling, not for
 * a hot path: a mark costs a driver call. One thread at a time.
 */
@Experimental
public interface StreamClock extends AutoCloseable {
  /**
   * Enqueues a reading of the device's clock, after all work enqueued so far.
   *
   * @param point its number; reuse it only after its last time is no longer needed
   */
  void mark(int point);

  /**
   * Returns the times of two points that the stream has passed, the first one before the second.
   *
   * @param seenNs {@link System#nanoTime} at which the host saw that the second was passed
   * @param times receives both times in ns of {@link System#nanoTime}. The device measures the time
   *     between them. Both lie between the enqueue of the first and {@code seenNs}
   * @return whether they are known; false if the device has failed
   */
  boolean read(int from, int to, long seenNs, long[] times);

  /** Frees its device resources. Idempotent. Enqueued points stay valid. */
  @Override
  void close();
}
