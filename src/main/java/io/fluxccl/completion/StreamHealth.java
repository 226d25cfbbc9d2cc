package io.fluxccl.completion;

import io.fluxccl.DeviceFailure;

/** Whether a stream can still get anywhere. Asked by the completion thread; never blocks. */
@FunctionalInterface
public interface StreamHealth {
  /**
   * Looks once.
   *
   * @return why the stream will never do what was enqueued, or null while it may; allocates nothing
   *     in that case
   */
  DeviceFailure failure();
}
