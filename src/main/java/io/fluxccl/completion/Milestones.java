package io.fluxccl.completion;

/**
 * Another way for a stream to tell how far it is, beside the number in its {@link
 * CompletionQueue}'s line.
 */
@FunctionalInterface
public interface Milestones {
  /** A stream that has none: the line tells everything. */
  Milestones NONE = () -> 0;

  /**
   * Looks. Called by the agent's thread only, and only while somebody waits for a number that is
   * not in the line.
   *
   * @return the highest number that the stream is known to have reached, 0 if none; what was
   *     enqueued before it is done, and visible to the caller
   */
  long reached();
}
