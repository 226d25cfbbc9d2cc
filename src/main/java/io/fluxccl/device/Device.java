// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device;

import io.fluxccl.DataType;
import io.fluxccl.InvalidUsage;
import java.util.function.Consumer;

/**
 * A device that has memory and runs kernels. Thread-safe. Closing it closes its streams and graphs.
 * The caller closes the buffers, which stay readable until then.
 */
public interface Device extends AutoCloseable {
  /** Returns the kind, which determines the kernels that it can run. */
  DeviceKind kind();

  /** Returns its number among the devices of its kind on this machine, from 0. */
  int index();

  /** Returns one line of text: model, memory, cores. */
  String description();

  /**
   * Allocates memory that kernels, and ranks of other processes through a transport, can reach.
   * Zeroed.
   *
   * @param size bytes, 1 or more
   * @return the buffer; the caller closes it
   * @throws InvalidUsage if {@code size} is out of range for this device
   * @throws io.fluxccl.DeviceFailure if there is not enough memory
   */
  DeviceBuffer allocate(long size);

  /**
   * Allocates memory as floats of 32 bits. For 16 bits: {@link FloatView#of(DeviceBuffer,
   * DataType)}.
   *
   * @param size elements, 1 or more
   * @return zeros; the caller closes them
   * @throws InvalidUsage if {@code size} is out of range for this device
   * @throws io.fluxccl.DeviceFailure if there is not enough memory
   */
  default FloatView allocateFloats(long size) {
    return FloatView.of(allocate(DataType.FLOAT32.bytes(size)));
  }

  /** Allocates a matrix; otherwise as {@link #allocateFloats(long)}. */
  default FloatView allocateFloats(long rows, long cols) {
    return allocateFloats(DeviceView.elements(rows, cols)).shaped(rows, cols);
  }

  /** Allocates memory as integers of 32 bits; otherwise as {@link #allocateFloats(long)}. */
  default IntView allocateInts(long size) {
    return IntView.of(allocate(DataType.INT32.bytes(size)));
  }

  /** Allocates a matrix; otherwise as {@link #allocateInts(long)}. */
  default IntView allocateInts(long rows, long cols) {
    return allocateInts(DeviceView.elements(rows, cols)).shaped(rows, cols);
  }

  /** Allocates memory as bytes; otherwise as {@link #allocateFloats(long)}. */
  default ByteView allocateBytes(long size) {
    return ByteView.of(allocate(size));
  }

  /** Allocates a matrix; otherwise as {@link #allocateBytes(long)}. */
  default ByteView allocateBytes(long rows, long cols) {
    return allocateBytes(DeviceView.elements(rows, cols)).shaped(rows, cols);
  }

  /**
   * Allocates memory of the host that the device's kernels can read and write too. Zeroed, aligned
   * to 64 bytes.
   *
   * @param size bytes, 1 or more
   * @return the buffer; the caller closes it
   * @throws io.fluxccl.DeviceFailure if there is not enough memory
   */
  PinnedBuffer allocatePinned(int size);

  /**
   * Creates a stream. Its work runs in order, concurrently with the work of other streams.
   *
   * @param name for thread names and diagnostics
   * @return the stream; closed by the caller, or with the device
   */
  DeviceStream createStream(String name);

  /**
   * Creates a stream for work that running kernels wait for, such as a peer's data. The device
   * prefers its work to that of other streams, and never delays it until a waiting kernel has
   * ended. Otherwise like {@link #createStream(String)}.
   *
   * @param name for thread names and diagnostics
   * @return the stream; closed by the caller, or with the device
   */
  default DeviceStream createPreferredStream(String name) {
    return createStream(name);
  }

  /**
   * Records work as a graph, which can be launched repeatedly. For set-up: a recording costs far
   * more than a launch.
   *
   * <p>Work enqueued on the stream passed to {@code work}, and on its {@linkplain
   * DeviceStream#branch branches}, is recorded and not run. Launches use the argument values of the
   * recording. Only the calling thread may use these streams, until {@code work} returns. They have
   * no completions, wait for no stream outside the recording, and launch no graph. Other calls
   * within {@code work} take effect at once.
   *
   * @param name for diagnostics
   * @param work enqueues the work; if it throws, the recording is discarded
   * @return the graph; closed by the caller, or with the device
   * @throws io.fluxccl.DeviceFailure if the device can't make a graph of it
   */
  DeviceGraph record(String name, Consumer<? super DeviceStream> work);

  /**
   * Runs an action once the work that is already enqueued on this device's streams is done: for
   * callers that release memory which kernels may still use. Returns without waiting. The action
   * may close a stream: that fails no future of this work.
   *
   * @param action short, and throws nothing; runs on the caller's thread if there is no such work,
   *     otherwise on a thread of the device
   */
  void whenEnqueuedWorkIsDone(Runnable action);

  /**
   * Prepares the calling thread for frequent use of this device: makes a GPU's context current and
   * binds the thread to the cores near the GPU. By default does nothing.
   */
  default void bindThread() {}

  /** Returns whether buffers of this device can be exported as dma-bufs for other devices. */
  default boolean exportsDmaBufs() {
    return false;
  }

  /**
   * Returns whether work of this device sees a network device's earlier writes to its memory, if it
   * is enqueued after the host has seen a later write of that network device.
   */
  default boolean ordersRemoteWrites() {
    return true;
  }

  /** Closes the streams and refuses new work. Idempotent. */
  @Override
  void close();
}
