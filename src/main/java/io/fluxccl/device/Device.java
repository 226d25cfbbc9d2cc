// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device;

import io.fluxccl.DataType;
import io.fluxccl.InvalidUsage;
import java.util.function.Consumer;

/**
 * One place where memory lives and kernels run. Thread-safe. Closing it closes its streams and
 * graphs; buffers are the caller's to close and stay readable until then.
 */
public interface Device extends AutoCloseable {
  /** Returns the kind, which decides what kernels it takes. */
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

  /** {@link #allocateFloats(long)} for a matrix of so many rows and columns. */
  default FloatView allocateFloats(long rows, long cols) {
    return allocateFloats(DeviceView.elements(rows, cols)).shaped(rows, cols);
  }

  /** Allocates memory as integers of 32 bits; otherwise as {@link #allocateFloats(long)}. */
  default IntView allocateInts(long size) {
    return IntView.of(allocate(DataType.INT32.bytes(size)));
  }

  /** {@link #allocateInts(long)} for a matrix of so many rows and columns. */
  default IntView allocateInts(long rows, long cols) {
    return allocateInts(DeviceView.elements(rows, cols)).shaped(rows, cols);
  }

  /** Allocates memory as bytes; otherwise as {@link #allocateFloats(long)}. */
  default ByteView allocateBytes(long size) {
    return ByteView.of(allocate(size));
  }

  /** {@link #allocateBytes(long)} for a matrix of so many rows and columns. */
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
   * Creates a stream: work enqueued on it runs in order, alongside that of other streams.
   *
   * @param name for thread names and diagnostics
   * @return the stream; closed by the caller, or with the device
   */
  DeviceStream createStream(String name);

  /**
   * Creates a stream for what running kernels wait for, such as a peer's data: ahead of the work of
   * other streams, and never behind kernels that wait. Otherwise like {@link
   * #createStream(String)}.
   *
   * @param name for thread names and diagnostics
   * @return the stream; closed by the caller, or with the device
   */
  default DeviceStream createPreferredStream(String name) {
    return createStream(name);
  }

  /**
   * Records work, to be launched as one as often as wanted. For set-up: costs far more than the
   * launches.
   *
   * <p>What is enqueued on the stream that {@code work} is given, and on its {@linkplain
   * DeviceStream#branch branches}, is kept and not run. Arguments are taken as they are now. These
   * streams are for the calling thread, until {@code work} returns; they have no completions, wait
   * for no stream outside the recording, and launch no graph. Everything else that {@code work}
   * calls happens at once.
   *
   * @param name for diagnostics
   * @param work enqueues; what it throws ends the recording, and leaves nothing behind
   * @return the graph; closed by the caller, or with the device
   * @throws io.fluxccl.DeviceFailure if the device can't make a graph of it
   */
  DeviceGraph record(String name, Consumer<? super DeviceStream> work);

  /**
   * Runs an action once the work that is already enqueued on this device's streams is done: for
   * callers that release memory which kernels may still be using. Waits for nothing.
   *
   * @param action short, and throws nothing; run by the caller when there is no such work,
   *     otherwise by a thread of the device
   */
  void whenEnqueuedWorkIsDone(Runnable action);

  /**
   * Readies the calling thread for working with this device often: a GPU's context becomes current
   * in it and it moves to the cores near the GPU. Does nothing where there is nothing to do.
   */
  default void bindThread() {}

  /** Returns whether buffers of this device can be exported as dma-bufs for other devices. */
  default boolean exportsDmaBufs() {
    return false;
  }

  /**
   * Returns whether work of this device sees what a network device has written to its memory, if
   * the work is enqueued after the host has seen a later write of that network device.
   */
  default boolean ordersRemoteWrites() {
    return true;
  }

  /** Closes the streams and refuses new work. Idempotent. */
  @Override
  void close();
}
