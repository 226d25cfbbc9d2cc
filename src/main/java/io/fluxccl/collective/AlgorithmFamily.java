package io.fluxccl.collective;

import java.util.List;
import java.util.concurrent.CompletableFuture;

/**
 * Algorithms that share memory and set-up. Found by {@link java.util.ServiceLoader}: name an
 * implementation in {@code META-INF/services/io.fluxccl.collective.AlgorithmFamily}, or hand it to
 * {@link CollectivesOptions#withFamily}. Every rank must have the same families.
 */
public interface AlgorithmFamily {
  /** Its name among all families; families are prepared in the order of their names. */
  String name();

  /** What it offers, a line for each algorithm: "name: when and how". */
  List<String> description();

  /** Whether it can work among those ranks; must come out the same on every one of them. */
  boolean supports(RankTopology topology);

  /**
   * Readies it for a lane: memory, exchange, semaphores. Called on all ranks at the same point.
   *
   * @param peers the lane's connections
   * @return the ready algorithms, which the lane closes; or why not. What fails half-way frees what
   *     it took
   */
  CompletableFuture<AlgorithmSet> prepare(PeerConnections peers);
}
