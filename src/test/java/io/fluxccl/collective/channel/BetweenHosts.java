// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.channel;

import static io.fluxccl.DataType.INT32;
import static io.fluxccl.ReduceOp.MAX;
import static io.fluxccl.collective.Collective.ALL_GATHER;
import static io.fluxccl.collective.Collective.ALL_REDUCE;
import static io.fluxccl.collective.Collective.ALL_TO_ALL;
import static io.fluxccl.collective.Collective.BROADCAST;
import static io.fluxccl.collective.Collective.REDUCE;
import static io.fluxccl.collective.Collective.REDUCE_SCATTER;

import io.fluxccl.collective.CallShape;
import io.fluxccl.collective.Collective;
import io.fluxccl.collective.CollectiveCall;
import io.fluxccl.collective.Collectives;
import io.fluxccl.collective.CollectivesOptions;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.testing.Rounds;
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.testkit.LocalRanks;
import java.time.Duration;
import java.util.List;
import java.util.function.BiConsumer;
import java.util.function.Consumer;
import org.junit.jupiter.api.TestInstance;

/** Collectives of ranks on several pretended hosts, on the host device or on GPUs. */
@TestInstance(TestInstance.Lifecycle.PER_CLASS)
abstract class BetweenHosts {
  static final Duration LONG = Duration.ofSeconds(180);

  /** Collectives that have a hierarchical algorithm. */
  static final List<Collective> BY_HOSTS =
      List.of(ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, BROADCAST, REDUCE, ALL_TO_ALL);

  /** An element count that fills several slots of a pipe. */
  static final int MANY = Rounds.of(100_003, 300_007);

  boolean onGpus() {
    return true;
  }

  LocalRanks hosts(int hosts, int ranksPerHost) {
    return onGpus()
        ? LocalRanks.ofHostsOnGpus(hosts, ranksPerHost)
        : LocalRanks.ofHosts(hosts, ranksPerHost);
  }

  LocalRanks hosts(List<Long> hostOf) {
    return onGpus() ? LocalRanks.onHostsOnGpus(hostOf) : LocalRanks.onHosts(hostOf);
  }

  /** Returns element counts, smaller ones for jobs that are slow on emulated GPUs. */
  int[] counts(int nRanks) {
    if (!onGpus()) {
      return Rounds.LONG
          ? new int[] {0, 1, 3, 1023, 65_537, 4, MANY}
          : new int[] {0, 3, 1023, MANY};
    }
    return nRanks > 4 ? new int[] {1, 1023, 4, 33_001} : new int[] {0, 1, 1023, 3, 130_001};
  }

  static CollectivesOptions byHosts() {
    return by("hierarchical");
  }

  static CollectivesOptions by(String algorithm) {
    CollectivesOptions options = CollectivesOptions.DEFAULT;
    for (Collective kind : BY_HOSTS) {
      options = options.withAlgorithm(kind, algorithm);
    }
    return options;
  }

  static Collectives open(LocalRank rank, CollectivesOptions options) {
    return Collectives.create(rank.communicator(), options).join();
  }

  /** Runs a body on each rank, and closes the ranks. */
  static void run(
      LocalRanks ranks, CollectivesOptions options, BiConsumer<LocalRank, Collectives> body) {
    try (ranks) {
      ranks.run(
          LONG,
          rank -> {
            try (Collectives collectives = open(rank, options)) {
              body.accept(rank, collectives);
            } catch (RuntimeException | AssertionError e) {
              System.out.println(rank.communicator().dump());
              throw e;
            }
          });
    }
  }

  static void verify(
      LocalRanks ranks, CollectivesOptions options, Consumer<CollectiveVerifier> body) {
    run(ranks, options, (rank, collectives) -> body.accept(new CollectiveVerifier(collectives)));
  }

  /** Returns a call with {@code count} elements in the larger buffer. */
  static CollectiveCall call(Collective kind, DeviceBuffer x, DeviceBuffer y, int count, int root) {
    boolean isOfShares = kind == ALL_GATHER || kind == REDUCE_SCATTER || kind == ALL_TO_ALL;
    return new CallShape(kind, isOfShares ? count / 4 : count, INT32, MAX, root).on(x, y);
  }
}
