// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device;

import java.util.Optional;
import java.util.concurrent.CompletableFuture;

/**
 * A queue of work that a device runs in order. Enqueuing never waits for the device. One thread at
 * a time may enqueue.
 *
 * <p>A kernel that fails does not stop the stream: the next {@link #completion()} that covers it
 * reports the failure, and later work runs, unless {@link #failFast} was called. (A GPU runs no
 * further work after a kernel has failed.)
 */
public interface DeviceStream extends AutoCloseable {
  /** Returns the device it belongs to. */
  Device device();

  /**
   * Enqueues a kernel.
   *
   * @param kernel made for this device's kind
   * @param gridDim blocks, 1 or more
   * @param blockDim threads a block, 1 or more
   * @param args its arguments
   * @return this stream
   * @throws io.fluxccl.InvalidUsage if the kernel is for another kind of device or a dimension is
   *     out of range
   */
  DeviceStream launch(Kernel kernel, int gridDim, int blockDim, KernelArgs args);

  /**
   * Enqueues a copy within this device.
   *
   * @return this stream
   * @throws io.fluxccl.InvalidUsage if either range lies outside its buffer
   */
  DeviceStream copy(
      DeviceBuffer target, long targetOffset, DeviceBuffer source, long sourceOffset, long size);

  /**
   * Enqueues a copy from this device's memory to pinned memory of the host.
   *
   * @return this stream
   * @throws io.fluxccl.InvalidUsage if either range lies outside its buffer
   */
  DeviceStream copy(
      PinnedBuffer target, int targetOffset, DeviceBuffer source, long sourceOffset, int size);

  /**
   * Enqueues a copy from pinned memory of the host to this device's memory.
   *
   * @return this stream
   * @throws io.fluxccl.InvalidUsage if either range lies outside its buffer
   */
  DeviceStream copy(
      DeviceBuffer target, long targetOffset, PinnedBuffer source, int sourceOffset, int size);

  /**
   * Enqueues a store of a 64-bit value to this device's memory, which kernels see only after the
   * effects of all work enqueued before it.
   *
   * @param target where
   * @param offset bytes from its start, a multiple of 8
   * @param value what
   * @return this stream
   * @throws io.fluxccl.InvalidUsage if there is no such word
   */
  DeviceStream writeValue(DeviceBuffer target, long offset, long value);

  /**
   * Enqueues a store of a 64-bit value, released after all work enqueued before it.
   *
   * @param target where
   * @param index byte offset, a multiple of 8
   * @param value what
   * @return this stream
   */
  DeviceStream writeValue(PinnedBuffer target, int index, long value);

  /**
   * Makes later work on this stream wait, on the device, for the work enqueued on another stream so
   * far. The caller does not wait. A wait for the same stream has no effect.
   *
   * <p>If that work fails and no completion has reported it yet, this stream's next completion
   * reports it, too. If the other stream is closed first, work after the wait runs once the other
   * stream has stopped. If the close dropped work (on the host device), this stream's next
   * completion fails with {@link io.fluxccl.Aborted}.
   *
   * @param other of a device of the same kind in this process; a recording stream only if this
   *     stream belongs to the same recording
   * @return this stream
   * @throws io.fluxccl.InvalidUsage if it is another kind of stream, or one of the two is closed
   */
  DeviceStream waitFor(DeviceStream other);

  /**
   * Returns another stream, for work that may run concurrently with this one's. The first call with
   * a name creates the stream, and later calls return it. It is closed with this stream. The two
   * wait for each other only by {@link #waitFor}: fork with {@code branch.waitFor(this)}, join with
   * {@code waitFor(branch)}.
   *
   * <p>In a recording it is a branch of the graph. The branch starts after the work recorded on
   * this stream before the branch was created. A launch is done when all its branches are done.
   *
   * @param name for thread names and diagnostics
   * @return the stream
   * @throws io.fluxccl.InvalidUsage if this stream is closed
   */
  DeviceStream branch(String name);

  /**
   * Enqueues all work of a graph. Launches of one graph run one at a time, also on different
   * streams.
   *
   * @param graph recorded on this stream's device
   * @return this stream
   * @throws io.fluxccl.InvalidUsage if the graph belongs to another device or is closed, or this
   *     stream records
   */
  DeviceStream launch(DeviceGraph graph);

  /**
   * Skips all work after a failed kernel, on this stream and on branches created later. Every later
   * {@link #completion()} then reports the failure. Call it before the first work.
   *
   * @return this stream
   */
  default DeviceStream failFast() {
    return this;
  }

  /**
   * Creates a clock of this stream, which the caller closes.
   *
   * @param points the number of times that it can hold
   * @return empty if the stream records, or its device has none
   */
  default Optional<StreamClock> clock(int points) {
    return Optional.empty();
  }

  /**
   * Returns whether the owner of a wrapped stream currently captures it. Work enqueued during a
   * capture becomes a part of the owner's graph. It does not run now, and its completion completes
   * at once.
   */
  default boolean isCapturing() {
    return false;
  }

  /**
   * Returns a future of all work enqueued so far. It completes on a thread of the library: run long
   * continuations on another thread.
   *
   * @return completes when that work is done; fails with {@link io.fluxccl.DeviceFailure} if a
   *     kernel of it failed, or with {@link io.fluxccl.Aborted} if the stream was closed first
   * @throws io.fluxccl.InvalidUsage if the stream records
   */
  CompletableFuture<Void> completion();

  /**
   * Drops work that has not started, does not wait for running work, and fails the futures of both.
   * Idempotent. A recording stream ends with its recording and can't be closed.
   */
  @Override
  void close();
}
