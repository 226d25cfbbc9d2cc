// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.allpairs;

import io.fluxccl.testing.EmulatedGpus;
import io.fluxccl.testing.RequiresGpus;
import io.fluxccl.testkit.LocalRanks;
import java.time.Duration;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** The sample on two hosts of two ranks; it checks every element itself. */
@Timeout(120)
class AllPairsTest {
  private static final Duration LIMIT = Duration.ofSeconds(100);
  private static final int BUFFERS = 2;
  private static final long BYTES = 100_000;

  /** Closes the ranks. */
  static void run(LocalRanks opened, Network network) {
    try (LocalRanks ranks = opened) {
      ranks.run(
          LIMIT,
          rank ->
              AllPairsAllReduce.run(rank.communicator(), rank.stream(), network, BUFFERS, BYTES));
    }
  }

  @Test
  void shouldReduceBetweenHosts() {
    run(LocalRanks.ofHosts(2, 2), new Network(Network.Kind.ETHERNET, false));
  }

  @Test
  void shouldReduceOverTheNetworkOnly() {
    run(LocalRanks.ofHosts(1, 2), new Network(Network.Kind.ETHERNET, true));
  }

  @Test
  @RequiresGpus
  @EmulatedGpus
  void shouldReduceBetweenGpus() {
    run(LocalRanks.ofHostsOnGpus(2, 2), new Network(Network.Kind.ETHERNET, false));
  }
}
