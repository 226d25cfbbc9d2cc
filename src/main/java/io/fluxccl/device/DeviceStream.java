package io.fluxccl.device;

import java.util.concurrent.CompletableFuture;

/**
 * A queue of work that a device does in order. Enqueuing never waits for the device and may be done
 * from any thread, one at a time.
 *
 * <p>A kernel that fails does not stop the stream: the next {@link #completion()} that covers it
 * reports the failure, and work behind it runs.
 */
public interface DeviceStream extends AutoCloseable {
  /** The device it belongs to. */
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
   * A future of everything enqueued so far. It completes on a thread of the library: go on
   * elsewhere if what follows takes long.
   *
   * @return completes when that work is done, with {@link io.fluxccl.DeviceFailure} if a kernel of
   *     it failed, or with {@link io.fluxccl.Aborted} if the stream was closed first
   */
  CompletableFuture<Void> completion();

  /**
   * Drops work that has not begun, waits for none that has, and fails the futures of both.
   * Idempotent.
   */
  @Override
  void close();
}
