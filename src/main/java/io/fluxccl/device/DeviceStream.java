// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device;

import java.util.Optional;
import java.util.concurrent.CompletableFuture;

/**
 * A queue of work that a device does in order. Enqueuing never waits for the device and may be done
 * from any thread, one at a time.
 *
 * <p>A kernel that fails does not stop the stream: the next {@link #completion()} that covers it
 * reports the failure, and work behind it runs, unless the stream is to {@link #failFast}. (A GPU
 * runs nothing any more after a kernel has failed.)
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
   * Enqueues a store of a 64-bit value to this device's memory, visible to kernels not before the
   * work enqueued before it.
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
   * Lets what is enqueued here from now on wait, on the device, for everything that has been
   * enqueued on another stream so far. The caller does not wait; a stream that waits for itself
   * does nothing.
   *
   * <p>A failure of that work which no completion has reported yet is reported by this stream's
   * next completion, too. If the other stream is closed before it gets there, work behind the wait
   * runs all the same once the other stream has stopped; where closing has dropped work (on the
   * host device), this stream's next completion then fails with {@link io.fluxccl.Aborted}.
   *
   * @param other of a device of the same kind in this process; not a recording one, unless of the
   *     same recording as this
   * @return this stream
   * @throws io.fluxccl.InvalidUsage if it is another kind of stream, or one of the two is closed
   */
  DeviceStream waitFor(DeviceStream other);

  /**
   * Returns a stream beside this one, for work that may run at the same time as this one's. Made by
   * the first call with that name, the same at each later one, and closed with this one. The two
   * don't wait for each other unless {@link #waitFor} makes them: fork with {@code
   * branch.waitFor(this)}, join with {@code waitFor(branch)}.
   *
   * <p>In a recording it is a branch of the graph, which begins behind what was recorded here
   * before the branch was made; a launch is done when all its branches are.
   *
   * @param name for thread names and diagnostics
   * @return the stream
   * @throws io.fluxccl.InvalidUsage if this stream is closed
   */
  DeviceStream branch(String name);

  /**
   * Enqueues all the work of a graph, to run as often as it is launched. Launches of one graph run
   * one after the other, on whatever streams.
   *
   * @param graph recorded on this stream's device
   * @return this stream
   * @throws io.fluxccl.InvalidUsage if it is of another device or closed, or this stream records
   */
  DeviceStream launch(DeviceGraph graph);

  /**
   * From now on nothing is done behind a kernel that failed, here and on branches made later: every
   * later {@link #completion()} reports the failure. Call it before the first work.
   *
   * @return this stream
   */
  default DeviceStream failFast() {
    return this;
  }

  /**
   * Creates a clock of this stream, for its owner to close.
   *
   * @param points how many times it can hold at once
   * @return empty if the stream records, or its device has none
   */
  default Optional<StreamClock> clock(int points) {
    return Optional.empty();
  }

  /**
   * Returns whether the owner of a wrapped stream captures it at present. What is enqueued then
   * becomes a part of the owner's graph; it does not run now, and its completion completes at once.
   */
  default boolean isCapturing() {
    return false;
  }

  /**
   * Returns a future of everything enqueued so far. It completes on a thread of the library: go on
   * elsewhere if what follows takes long.
   *
   * @return completes when that work is done, with {@link io.fluxccl.DeviceFailure} if a kernel of
   *     it failed, or with {@link io.fluxccl.Aborted} if the stream was closed first
   * @throws io.fluxccl.InvalidUsage if the stream records
   */
  CompletableFuture<Void> completion();

  /**
   * Drops work that has not begun, waits for none that has, and fails the futures of both.
   * Idempotent. A recording stream ends with its recording and can't be closed.
   */
  @Override
  void close();
}
