// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.host;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.bootstrap.JobSecret;
import io.fluxccl.collective.Collectives;
import io.fluxccl.collective.CollectivesOptions;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.host.ChildJvm;
import io.fluxccl.device.host.SegmentLeaks;
import io.fluxccl.group.JoinOptions;
import io.fluxccl.group.RankGroup;
import io.fluxccl.testing.Rounds;
import java.net.ServerSocket;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Processes that map each other's buffers as they use them again, and let go of them. */
@Tag("multiprocess")
@Timeout(180)
class UnregisteredMemoryProcessTest {
  private static final int RANKS = 3;
  private static final int THREADS = 2;
  private static final int ROUNDS = Rounds.of(2, 30);
  private static final int MAX_BYTES = 200_000;

  /** A rank that does all kinds of calls on buffers that live for a few of them. */
  static final class Rank {
    private static final Duration LONG = Duration.ofSeconds(100);

    public static void main(String[] args) {
      SegmentLeaks leaks = SegmentLeaks.now();
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
        long before = foreign();
        Random random = new Random(RANKS);
        long most = 0;
        for (int buffer = 0; buffer < ROUNDS; buffer++) {
          try (DeviceBuffer memory = group.device().allocate(Exercise.memory(RANKS, MAX_BYTES))) {
            for (int i = 0; i < 8; i++) {
              Exercise.Run run = Exercise.draw(random, RANKS, MAX_BYTES).on(group.rank(), memory);
              collectives.barrier().then(collectives.run(run.call)).block(LONG);
              collectives.barrier().block(LONG);
              run.verify();
            }
          }
          most = Math.max(most, foreign() - before);
        }
        System.out.println("mapped " + most);
      }
      leaks.assertNoneSince();
      System.out.println("left nothing");
      Runtime.getRuntime().halt(0);
    }

    /** How many mappings of shared memory there are. */
    private static long foreign() {
      return SegmentLeaks.maps().lines().filter(line -> line.contains("/fluxccl-")).count();
    }
  }

  @Test
  void shouldMapWhatIsUsedAgainAndLetGoOfIt() throws Exception {
    String address;
    try (ServerSocket probe = new ServerSocket(0)) {
      address = "127.0.0.1:" + probe.getLocalPort();
    }
    String secret = JobSecret.random().text();
    List<ChildJvm> processes = new ArrayList<>();
    try {
      for (int rank = 0; rank < RANKS; rank++) {
        processes.add(
            ChildJvm.start(
                Rank.class,
                List.of(),
                Map.of(
                    "FLUXCCL_DEVICE",
                    "host",
                    "FLUXCCL_RANK",
                    Integer.toString(rank),
                    "FLUXCCL_NRANKS",
                    Integer.toString(RANKS),
                    "FLUXCCL_ADDR",
                    address,
                    "FLUXCCL_SECRET",
                    secret)));
      }
      for (ChildJvm process : processes) {
        String mapped = process.readLine();
        assertThat(mapped).startsWith("mapped ");
        // One at least was; and those of buffers that are closed by now don't pile up.
        assertThat(Long.parseLong(mapped.substring("mapped ".length())))
            .isBetween(1L, 4L * (RANKS - 1) * THREADS);
        assertThat(process.readLine()).isEqualTo("left nothing");
      }
    } finally {
      for (ChildJvm process : processes) {
        process.close();
      }
    }
  }
}
