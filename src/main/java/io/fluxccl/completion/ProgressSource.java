// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.completion;

/**
 * Another source of the progress of a stream, besides the number in its {@link CompletionQueue}'s
 * line.
 */
@FunctionalInterface
public interface ProgressSource {
  /**
   * Returns the progress. Called by the agent's thread only, and only while a waiter waits for a
   * number that the line has not reached.
   *
   * @return the highest number that the stream is known to have reached, 0 if none; all work
   *     enqueued before it is done, and its results are visible to the caller
   */
  long reached();
}
