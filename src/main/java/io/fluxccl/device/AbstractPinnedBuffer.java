// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device;

import io.fluxccl.Experimental;
import java.util.concurrent.atomic.AtomicBoolean;
import org.agrona.concurrent.AtomicBuffer;
import org.agrona.concurrent.UnsafeBuffer;

/** Pinned memory that is released once, after the work that may use it. Thread-safe. */
@Experimental
public abstract class AbstractPinnedBuffer implements PinnedBuffer {
  private final Device device;
  private final UnsafeBuffer buffer;
  private final AtomicBoolean closed = new AtomicBoolean();

  /**
   * Creates one that is open.
   *
   * @param device the device whose work may use it
   * @param buffer the memory as host threads see it
   */
  protected AbstractPinnedBuffer(Device device, UnsafeBuffer buffer) {
    this.device = device;
    this.buffer = buffer;
  }

  /** Releases the memory; called once. */
  protected abstract void release();

  @Override
  public final AtomicBuffer buffer() {
    return buffer;
  }

  @Override
  public long deviceAddress() {
    return buffer.addressOffset();
  }

  @Override
  public final int size() {
    return buffer.capacity();
  }

  @Override
  public final boolean isClosed() {
    return closed.get();
  }

  @Override
  public final void close() {
    if (closed.compareAndSet(false, true)) {
      device.whenEnqueuedWorkIsDone(this::release);
    }
  }

  /** Releases it at once; the caller must ensure that no work uses it. */
  public final void closeNow() {
    if (closed.compareAndSet(false, true)) {
      release();
    }
  }
}
