// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.communicator;

import io.fluxccl.Deadline;
import io.fluxccl.Experimental;
import java.util.concurrent.CompletableFuture;

/**
 * An operation that waits in the communicator's queue for {@code setup()}. First every queued
 * operation's {@link #beginSetup} is called, in order, then every {@link #endSetup}: so what one
 * rank sends never waits for what it is to receive.
 */
@Experimental
public interface SetupOperation {
  /**
   * Sends what the peer needs.
   *
   * @param deadline of the whole set-up
   */
  void beginSetup(Deadline deadline);

  /**
   * Receives what the peer sent and finishes.
   *
   * @param deadline of the whole set-up
   * @return completes when this operation is done; its error names the rank, the tag and the
   *     operation
   */
  CompletableFuture<Void> endSetup(Deadline deadline);

  /** The operation for diagnostics, for example {@code connectOnSetup(rank=1, tag=0, SHM)}. */
  String describe();

  /**
   * Ends the operation without a result.
   *
   * @param reason why
   */
  void fail(Throwable reason);
}
