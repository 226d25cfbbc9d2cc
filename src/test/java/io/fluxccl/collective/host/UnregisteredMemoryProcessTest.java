// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.host;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.collective.Collectives;
import io.fluxccl.collective.CollectivesOptions;
import io.fluxccl.collective.RandomCollectiveCase;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.group.JoinOptions;
import io.fluxccl.group.RankGroup;
import io.fluxccl.testing.Rounds;
import io.fluxccl.testing.TestJvms;
import io.fluxccl.testkit.ProcessRank;
import io.fluxccl.testkit.ProcessRanks;
import io.fluxccl.testkit.ResourceLeaks;
import java.time.Duration;
import java.util.Map;
import java.util.Random;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Processes that map each other's reused buffers and unmap closed ones. */
@Tag("multiprocess")
@Timeout(180)
class UnregisteredMemoryProcessTest {
  private static final int RANKS = 3;
  private static final int THREADS = 2;
  private static final int ROUNDS = Rounds.of(2, 30);
  private static final int MAX_BYTES = 200_000;

  /** A rank that runs all kinds of calls on short-lived buffers. */
  static final class Rank {
    private static final Duration LONG = Duration.ofSeconds(100);

    public static void main(String[] args) {
      ResourceLeaks leaks = ResourceLeaks.snapshot();
      try (RankGroup group =
              RankGroup.join(JoinOptions.fromEnvironment().withTimeout(LONG)).join();
          Collectives collectives =
              Collectives.create(
                      group.communicator(),
                      CollectivesOptions.DEFAULT
                          .withTag(1)
                          .withThreads(THREADS)
                          .withTimeout(LONG)
                          .withSetupTimeout(LONG))
                  .join()) {
        int before = ResourceLeaks.mappings().size();
        Random random = new Random(RANKS);
        long most = 0;
        for (int buffer = 0; buffer < ROUNDS; buffer++) {
          try (DeviceBuffer memory =
              group.device().allocate(RandomCollectiveCase.memory(RANKS, MAX_BYTES))) {
            for (int i = 0; i < 8; i++) {
              RandomCollectiveCase.Run run =
                  RandomCollectiveCase.draw(random, RANKS, MAX_BYTES).on(group.rank(), memory);
              collectives.barrier().then(collectives.run(run.call)).block(LONG);
              collectives.barrier().block(LONG);
              run.verify();
            }
          }
          most = Math.max(most, ResourceLeaks.mappings().size() - before);
        }
        System.out.println("mapped " + most);
      }
      // Ignore sockets that the JDK keeps open after the first use.
      Awaitility.await()
          .untilAsserted(() -> assertThat(leaks.since()).noneMatch(e -> e.contains("fluxccl-")));
      System.out.println("left nothing");
      Runtime.getRuntime().halt(0);
    }
  }

  @Test
  void shouldMapReusedBuffersAndUnmapClosedOnes() {
    Map<String, String> host = Map.of("FLUXCCL_DEVICE", "host");
    try (ProcessRanks ranks = TestJvms.of(RANKS, Rank.class).variables(host).start()) {
      for (ProcessRank rank : ranks.all()) {
        String mapped = rank.readLine();
        assertThat(mapped).startsWith("mapped ");
        // At least one was mapped, and mappings of closed buffers don't accumulate.
        assertThat(Long.parseLong(mapped.substring("mapped ".length())))
            .isBetween(1L, 4L * (RANKS - 1) * THREADS);
        assertThat(rank.readLine()).isEqualTo("left nothing");
      }
    }
  }
}
