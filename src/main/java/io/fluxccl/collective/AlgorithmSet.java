package io.fluxccl.collective;

import java.util.List;
import java.util.concurrent.CompletableFuture;

/** The algorithms of a family, ready on one lane, with the memory and channels that they share. */
public interface AlgorithmSet extends AutoCloseable {
  /** The algorithms, in the same order on every rank. */
  List<CollectiveAlgorithm> algorithms();

  /**
   * Readies the set for calls of so many bytes on registered buffers: the moment to grow memory and
   * to exchange it. Called on all ranks in the same order, while calls may be in flight and others
   * are enqueued; those must go on to work.
   *
   * @param bytes of the largest registered buffer
   * @return completes when this rank is ready for such calls
   */
  default CompletableFuture<Void> reserve(long bytes) {
    return CompletableFuture.completedFuture(null);
  }

  /**
   * Tells of a buffer that has been registered, for algorithms that look up peers' addresses on the
   * device. A peer may know of it earlier, and calls may use it already. May block a little. What
   * it throws fails the registration, and aborts: the peers count on it.
   */
  default void registered(Registration registration) {}

  /**
   * Sees off what other ranks may still send to this set's memory. Called once before {@link
   * #close}, when nothing enqueued uses the set any more, on all ranks, each in its time; not after
   * a failure.
   *
   * @return completes when that is over, or has taken some seconds; does not fail
   */
  default CompletableFuture<Void> drain() {
    return CompletableFuture.completedFuture(null);
  }

  /** Frees what it holds; called once, when nothing enqueued uses it any more. */
  @Override
  void close();
}
