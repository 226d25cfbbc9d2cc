package io.fluxccl.cli;

import java.util.concurrent.CompletableFuture;

/** Several calls of one collective that are ready to be enqueued as one, again and again. */
interface PerfWork extends AutoCloseable {
  /**
   * Enqueues them some times and returns without waiting for them.
   *
   * @param times how often, 1 or more
   * @return completes when all of it is done; fails when that takes longer than the run's time
   *     limit, and then so does the job, naming who is late
   */
  CompletableFuture<Void> run(int times);

  /** Lets go of what was prepared. Nothing is in flight. */
  @Override
  default void close() {}
}
