// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import io.fluxccl.group.JoinOptions;
import java.time.Duration;
import java.util.function.IntFunction;
import java.util.function.UnaryOperator;

/** Makes the ranks of {@code perf}. */
interface PerfBackend {
  /**
   * The options of a rank.
   *
   * @param joining chooses how the rank joins its job
   * @param timeout of set-up and of one collective
   * @param register whether buffers are registered
   * @param memory where the buffers come from
   */
  record RankOptions(
      UnaryOperator<JoinOptions> joining, Duration timeout, boolean register, PerfMemory memory) {}

  /**
   * Opens the rank that the environment gives this process, and returns when it has found the
   * others.
   *
   * @param options of the rank
   * @return the rank; the caller closes it
   * @throws io.fluxccl.InvalidUsage if the environment names no rank
   */
  PerfRank fromEnvironment(RankOptions options);

  /**
   * Returns ranks that share this JVM.
   *
   * @param nRanks how many
   * @param options of the rank
   * @return opens a rank, which its caller closes, and returns when it has found the others; the
   *     thread of each rank calls it once, all at the same time
   */
  IntFunction<PerfRank> inProcess(int nRanks, RankOptions options);

  /** Returns whether the ranks measure another library, too. */
  default boolean compares() {
    return false;
  }
}
