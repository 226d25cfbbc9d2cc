// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.Experimental;
import java.util.List;
import java.util.concurrent.CompletableFuture;

/**
 * Algorithms that share memory and set-up. Found by {@link java.util.ServiceLoader}: name an
 * implementation in {@code META-INF/services/io.fluxccl.collective.AlgorithmFamily}, or hand it to
 * {@link CollectivesOptions#withFamily}. Every rank must have the same families.
 */
@Experimental
public interface AlgorithmFamily {
  /** Returns its name; families are prepared in the order of their names. */
  String name();

  /** Returns a line for each algorithm: "name: when and how". */
  List<String> description();

  /** Returns settings of this process on which the choice among its algorithms depends, as text. */
  default String settings() {
    return "";
  }

  /** Returns whether it can work among those ranks: the same on every one of them. */
  boolean supports(RankTopology topology);

  /**
   * Prepares it for a lane: memory, exchange, semaphores. Called on all ranks at the same point.
   *
   * @param peers the lane's connections
   * @return the prepared algorithms, which the lane closes. A family that fails frees what it has
   *     allocated
   */
  CompletableFuture<AlgorithmSet> prepare(PeerConnections peers);
}
