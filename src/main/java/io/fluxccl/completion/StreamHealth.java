// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.completion;

import io.fluxccl.DeviceFailure;

/**
 * Checks whether a stream can still make progress. Called by the completion thread; never blocks.
 */
@FunctionalInterface
public interface StreamHealth {
  /**
   * Checks the stream once.
   *
   * @return the failure that prevents the stream from executing its work, or null while it may
   *     execute it; null results allocate nothing
   */
  DeviceFailure failure();
}
