package io.fluxccl.device;

/**
 * One place where memory lives and kernels run. Thread-safe. Closing it closes its streams; buffers
 * are the caller's to close and stay readable until then.
 */
public interface Device extends AutoCloseable {
  /** The kind, which decides what kernels it takes. */
  DeviceKind kind();

  /** Its number among the devices of its kind on this machine, from 0. */
  int index();

  /** One line for a person: model, memory, cores. */
  String description();

  /**
   * Allocates memory that kernels, and ranks of other processes through a transport, can reach.
   * Zeroed.
   *
   * @param size bytes, 1 or more
   * @return the buffer; the caller closes it
   * @throws io.fluxccl.InvalidUsage if {@code size} is out of range for this device
   * @throws io.fluxccl.DeviceFailure if there is not so much memory
   */
  DeviceBuffer allocate(long size);

  /**
   * Allocates memory of the host that the device's kernels can read and write too. Zeroed, aligned
   * to 64 bytes.
   *
   * @param size bytes, 1 or more
   * @return the buffer; the caller closes it
   * @throws io.fluxccl.DeviceFailure if there is not so much memory
   */
  PinnedBuffer allocatePinned(int size);

  /**
   * A new stream: work enqueued on it runs in order, alongside that of other streams.
   *
   * @param name for thread names and diagnostics
   * @return the stream; closed by the caller, or with the device
   */
  DeviceStream createStream(String name);

  /**
   * Runs an action once the work that is already enqueued on this device's streams is done: for
   * whoever lets go of memory that kernels may still be using. Waits for nothing.
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

  /** Closes the streams and refuses new work. Idempotent. */
  @Override
  void close();
}
