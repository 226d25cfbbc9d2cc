package io.fluxccl.completion;

import io.fluxccl.DeviceFailure;

/**
 * Tells whether a stream can still make progress. Called by the completion thread; never blocks.
 */
@FunctionalInterface
public interface StreamHealth {
  /**
   * Checks once.
   *
   * @return why the stream will never do what was enqueued, or null while it may; allocates nothing
   *     in that case
   */
  DeviceFailure failure();
}
