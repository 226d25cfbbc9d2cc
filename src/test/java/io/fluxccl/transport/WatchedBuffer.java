// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport;

import io.fluxccl.device.DeviceBuffer;
import java.util.concurrent.atomic.AtomicInteger;

/** A buffer that counts its users, and runs an action when a user releases it. */
public final class WatchedBuffer {
  private final AtomicInteger retained = new AtomicInteger();
  private final AtomicInteger released = new AtomicInteger();
  private final DeviceBuffer buffer;

  /** A buffer that behaves as that one. */
  public WatchedBuffer(DeviceBuffer inner) {
    this(inner, () -> {});
  }

  /**
   * A buffer that behaves as that one.
   *
   * @param atRelease run before a user releases the buffer
   */
  public WatchedBuffer(DeviceBuffer inner, Runnable atRelease) {
    Object watch =
        new Object() {
          void retain() {
            inner.retain();
            retained.incrementAndGet();
          }

          void release() {
            atRelease.run();
            inner.release();
            released.incrementAndGet();
          }
        };
    buffer = Overlay.of(DeviceBuffer.class, watch, inner);
  }

  public DeviceBuffer buffer() {
    return buffer;
  }

  /** Number of calls of {@code retain}. */
  public int retained() {
    return retained.get();
  }

  /** Number of calls of {@code release}. */
  public int released() {
    return released.get();
  }
}
