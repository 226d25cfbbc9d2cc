// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport;

import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceBuffer;
import java.nio.ByteBuffer;
import java.util.concurrent.atomic.AtomicInteger;

/** A buffer that counts its users, and runs an action when a user releases it. */
public final class WatchedBuffer implements DeviceBuffer {
  private final DeviceBuffer inner;
  private final Runnable atRelease;
  private final AtomicInteger retained = new AtomicInteger();
  private final AtomicInteger released = new AtomicInteger();

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
    this.inner = inner;
    this.atRelease = atRelease;
  }

  /** Returns the inner buffer, which a device copies. */
  public static DeviceBuffer unwrap(DeviceBuffer buffer) {
    return buffer instanceof WatchedBuffer watched ? watched.inner : buffer;
  }

  /** Number of calls of {@code retain}. */
  public int retained() {
    return retained.get();
  }

  /** Number of calls of {@code release}. */
  public int released() {
    return released.get();
  }

  @Override
  public Device device() {
    return inner.device();
  }

  @Override
  public long address() {
    return inner.address();
  }

  @Override
  public long size() {
    return inner.size();
  }

  @Override
  public boolean isClosed() {
    return inner.isClosed();
  }

  @Override
  public DeviceBuffer slice(long offset, long size) {
    return inner.slice(offset, size);
  }

  @Override
  public void upload(long offset, ByteBuffer source) {
    inner.upload(offset, source);
  }

  @Override
  public void download(long offset, ByteBuffer target) {
    inner.download(offset, target);
  }

  @Override
  public void retain() {
    inner.retain();
    retained.incrementAndGet();
  }

  @Override
  public void release() {
    atRelease.run();
    inner.release();
    released.incrementAndGet();
  }

  @Override
  public void close() {
    inner.close();
  }
}
