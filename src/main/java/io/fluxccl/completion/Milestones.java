package io.fluxccl.completion;

/**
 * Another way to learn the progress of a stream, beside the number in its {@link CompletionQueue}'s
 * line.
 */
@FunctionalInterface
public interface Milestones {
  /** For a stream that stores all its numbers into the line. */
  Milestones NONE = () -> 0;

  /**
   * Returns the progress. Called by the agent's thread only, and only while something waits for a
   * number that is not in the line.
   *
   * @return the highest number that the stream is known to have reached, 0 if none; what was
   *     enqueued before it is done, and visible to the caller
   */
  long reached();
}
