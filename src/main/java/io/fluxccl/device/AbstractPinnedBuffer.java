// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device;

import io.fluxccl.Experimental;
import io.fluxccl.concurrent.Lifecycle;
import org.agrona.concurrent.AtomicBuffer;
import org.agrona.concurrent.UnsafeBuffer;

/** Pinned memory that is released once, after the work that may use it. Thread-safe. */
@Experimental
public abstract class AbstractPinnedBuffer implements PinnedBuffer {
  private final Device device;
  private final UnsafeBuffer buffer;
  private final long deviceAddress;
  private final Runnable release;
  private final Lifecycle lifecycle = new Lifecycle(this);

  /**
   * Creates one that is open.
   *
   * @param device the device whose work may use it
   * @param buffer the memory as host threads see it
   * @param deviceAddress its address for kernels
   * @param release releases the memory; called once
   */
  protected AbstractPinnedBuffer(
      Device device, UnsafeBuffer buffer, long deviceAddress, Runnable release) {
    this.device = device;
    this.buffer = buffer;
    this.deviceAddress = deviceAddress;
    this.release = release;
  }

  @Override
  public final AtomicBuffer buffer() {
    return buffer;
  }

  @Override
  public final long deviceAddress() {
    return deviceAddress;
  }

  @Override
  public final int size() {
    return buffer.capacity();
  }

  @Override
  public final boolean isClosed() {
    return lifecycle.isClosed();
  }

  @Override
  public final void close() {
    if (lifecycle.beginClose()) {
      device.whenEnqueuedWorkIsDone(release);
    }
  }

  /** Releases it at once; the caller must ensure that no work uses it. */
  public final void closeNow() {
    if (lifecycle.beginClose()) {
      release.run();
    }
  }

  @Override
  public final String toString() {
    return getClass().getSimpleName() + "(size=" + size() + ")";
  }
}
