// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device;

import io.fluxccl.Experimental;
import io.fluxccl.concurrent.Lifecycle;
import java.util.function.IntConsumer;

/**
 * A dma-buf of Linux: a file descriptor by which the driver of another device, such as a network
 * card, reaches memory of this device. It keeps the memory alive until it is closed.
 */
@Experimental
public final class DmaBuf implements AutoCloseable {
  private final int descriptor;
  private final long offset;
  private final Lifecycle lifecycle = new Lifecycle(this);

  /**
   * Takes over a descriptor.
   *
   * @param descriptor the file descriptor
   * @param offset the offset of the buffer's first byte in the dma-buf
   * @param close closes the descriptor
   */
  public DmaBuf(int descriptor, long offset, IntConsumer close) {
    this.descriptor = descriptor;
    this.offset = offset;
    lifecycle.own(() -> close.accept(descriptor));
  }

  /** Returns the file descriptor, which is open until {@link #close()}. */
  public int descriptor() {
    return descriptor;
  }

  /** Returns the offset of the buffer's first byte in the dma-buf. */
  public long offset() {
    return offset;
  }

  /** Closes the descriptor. Existing imports of other drivers keep the memory. Idempotent. */
  @Override
  public void close() {
    lifecycle.close();
  }
}
