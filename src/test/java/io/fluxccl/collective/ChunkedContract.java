// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import static io.fluxccl.testing.OnRanks.Runner.lane;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.DataType;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.testing.EmulatedGpus;
import io.fluxccl.testing.Rounds;
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.testkit.LocalRanks;
import java.time.Duration;
import java.util.List;
import java.util.Random;

/** Checks the chunks of chunkable collectives, on any number of ranks. */
record ChunkedContract(CollectivesOptions options, int count, boolean registered) {
  static final Duration LONG = Duration.ofSeconds(120);

  /** Emulated GPUs are slow: in the loop each call is made in place or out of place. */
  private static final boolean THIN = EmulatedGpus.HERE && !Rounds.LONG;

  void check(LocalRanks ranks, Collective... which) {
    List<Collective> all =
        which.length > 0
            ? List.of(which)
            : Collective.plain().stream().filter(ChunkedContract::isChunkable).toList();
    ranks.run(LONG, rank -> check(rank, all));
  }

  private static boolean isChunkable(Collective each) {
    return switch (each) {
      case BARRIER, SEND_RECEIVE, ALL_TO_ALL_V -> false;
      default -> true;
    };
  }

  private void check(LocalRank rank, List<Collective> which) {
    CollectivesOptions limited = options.withTimeout(LONG);
    long bytes = RandomCollectiveCase.memory(rank.nRanks(), (count + 1) * Integer.BYTES);
    try (Collectives collectives = lane(rank, limited);
        DeviceBuffer memory = rank.device().allocate(bytes)) {
      if (registered) {
        collectives.register(memory).join();
      }
      for (Collective each : which) {
        for (int of : new int[] {count - 1, count, count + 1}) {
          for (boolean inPlace : new boolean[] {false, true}) {
            if (!THIN || inPlace == ((of + each.ordinal()) % 2 == 1)) {
              Random random = new Random(of);
              check(
                  collectives,
                  new RandomCollectiveCase(random, rank.nRanks(), each, 8)
                      .with(DataType.INT32, of, inPlace)
                      .on(rank.rank(), memory),
                  of);
            }
          }
        }
      }
    }
  }

  private static void check(Collectives collectives, RandomCollectiveCase.Run run, int count) {
    int chunk = Math.max(1, count / 3);
    collectives.barrier().block(LONG); // all ranks have filled their memory
    List<Chunk> chunks =
        collectives.chunked(run.call, chunk, 2).doOnNext(run::verify).collectList().block(LONG);
    assertThat(chunks).hasSize((count + chunk - 1) / chunk);
    run.verify();
    collectives.barrier().block(LONG); // before any rank refills its memory
  }
}
