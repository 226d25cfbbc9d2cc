// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.Experimental;
import io.fluxccl.FluxCclException;
import java.util.List;
import java.util.concurrent.CompletableFuture;

/** The algorithms of a family, prepared for one lane, with the memory and channels they share. */
@Experimental
public interface AlgorithmSet extends AutoCloseable {
  /** Returns the algorithms, in the same order on every rank. */
  List<CollectiveAlgorithm> algorithms();

  /**
   * Prepares the set for calls on registered buffers of this size: it may allocate and exchange
   * memory now. Called on all ranks in the same order. It must not disturb other calls, which may
   * be enqueued or in flight meanwhile.
   *
   * @param bytes of the largest registered buffer
   * @return completes when this rank is ready for such calls
   */
  default CompletableFuture<Void> reserve(long bytes) {
    return CompletableFuture.completedFuture(null);
  }

  /**
   * Called after a buffer has been registered, for algorithms that look up peers' addresses on the
   * device. A peer may know of it earlier, and calls may use it already. May block briefly. An
   * exception fails the registration and aborts, because the peers count on it.
   */
  default void registered(Registration registration) {}

  /**
   * Drains what other ranks may still send to this set's memory. Called once before {@link #close},
   * when nothing enqueued uses the set any more; on all ranks, but not at the same time. Not called
   * after a failure.
   *
   * @return completes when nothing can arrive any more, or after some seconds; does not fail
   */
  default CompletableFuture<Void> drain() {
    return CompletableFuture.completedFuture(null);
  }

  /**
   * Returns what a kernel of this set has found wrong with values that it read from the device, or
   * null. Called whenever a run has completed: one read of memory. The job is then aborted.
   */
  default FluxCclException fault() {
    return null;
  }

  /** Frees memory and channels; called once, when nothing enqueued uses them any more. */
  @Override
  void close();
}
