// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.cuda;

import static io.fluxccl.testing.Outcomes.completes;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.DataType;
import io.fluxccl.collective.Collective;
import io.fluxccl.collective.Collectives;
import io.fluxccl.collective.RandomCollectiveCase;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.testing.Bytes;
import io.fluxccl.testing.EmulatedGpus;
import io.fluxccl.testing.OnRanks;
import io.fluxccl.testkit.LocalRank;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Short exchanges, also where the ranks of a pair use different kernels and grids. */
@EmulatedGpus
@Tag("any-order")
@OnRanks
class ShortExchangesEmulatedTest {
  private static final int LAUNCHES = 12;

  /** Messages of half a ring: they wrap around several times, and senders wait for space. */
  @ParameterizedTest
  @CsvSource({"ll8, 8", "ll8, 16384", "ll8, 10004", "ll128, 8", "ll128, 488", "ll128, 20000"})
  void shouldExchangeWithAnyKernelOfThePeer(String kind, int bytes) throws Exception {
    ExchangeRing ring = LaunchedRanks.ring(kind);
    try (LaunchedRanks ranks = new LaunchedRanks(ring.offset() + ring.length(), bytes * LAUNCHES)) {
      Random random = new Random(bytes);
      CompletableFuture<?>[] done = new CompletableFuture<?>[LaunchedRanks.RANKS];
      for (int rank = 0; rank < LaunchedRanks.RANKS; rank++) {
        ranks.inputs.get(rank).upload(0, Bytes.random(rank, bytes * LAUNCHES));
      }
      for (int i = 0; i < LAUNCHES; i++) {
        for (int rank = 0; rank < LaunchedRanks.RANKS; rank++) {
          DeviceBuffer input = ranks.inputs.get(rank).slice((long) i * bytes, bytes);
          DeviceBuffer output = ranks.outputs.get(rank).slice((long) i * bytes, bytes);
          String kernel = (i + rank) % 3 == 0 ? kind : "short_" + kind;
          int threads = 32 << random.nextInt(4);
          int blocks = 1 + random.nextInt(4);
          done[rank] = ranks.exchange(rank, kernel, input, output, blocks, threads);
        }
      }
      CompletableFuture.allOf(done).get(60, TimeUnit.SECONDS);
      for (int rank = 0; rank < LaunchedRanks.RANKS; rank++) {
        assertThat(Bytes.of(ranks.outputs.get(rank)))
            .isEqualTo(Bytes.random(1 - rank, bytes * LAUNCHES));
      }
    }
  }

  @Test
  void shouldDeclineExchangesThatAreLongMisalignedOrWithManyPeers() {
    ExchangeRing ring = LaunchedRanks.ring("ll128");
    try (LaunchedRanks ranks = new LaunchedRanks(ring.offset() + ring.length(), 8)) {
      ShortExchange exchange = ranks.shortExchange(0);
      int most = ring.slots() / 2 * ring.rowPayload();
      ExchangeParts parts = new ExchangeParts();
      assertThat(exchange.fill(parts.clear(ring).add(1, 512, most, 8, 16), ring)).isTrue();
      assertThat(exchange.fill(parts.clear(ring).add(1, 512, most + 8, 8, 16), ring)).isFalse();
      assertThat(exchange.fill(parts.clear(ring).add(1, 516, 80, 8, 16), ring)).isFalse();
      assertThat(exchange.fill(parts.clear(ring).add(1, 512, 80, 4, 16), ring)).isFalse();
      assertThat(exchange.fill(parts.clear(ring).add(1, 512, 84, 8, 16), ring)).isFalse();
      assertThat(exchange.fill(parts.clear(ring), ring)).isFalse();
      parts.clear(ring).add(1, 0, 80, 8, 16).add(0, 0, 80, 8, 16);
      assertThat(exchange.fill(parts, ring)).isTrue();
      assertThat(exchange.nParts()).isEqualTo(2);
      assertThat(exchange.fill(parts.add(1, 0, 80, 8, 16), ring)).isFalse();
      assertThat(exchange.fill(parts.clear(ring).add(1, 8, 80, 0, 0).add(1, 0, 0, 8, 80), ring))
          .isTrue();
      assertThat(exchange.nParts()).as("both directions of one pair").isEqualTo(1);
    }
  }

  /** Each rank sends to its successor and receives from its predecessor: parts of two peers. */
  @ParameterizedTest
  @ValueSource(ints = {8, 4096, 65536})
  @OnRanks(3)
  void shouldSendAroundARing(int bytes, LocalRank rank, Collectives collectives) {
    DeviceBuffer memory = rank.device().allocate(RandomCollectiveCase.memory(1, bytes + 16));
    for (int i = 0; i < 5; i++) {
      RandomCollectiveCase.Run run =
          new RandomCollectiveCase(new Random(i), 3, Collective.SEND_RECEIVE, 8)
              .with(DataType.INT64, bytes / 8 + 2, false)
              .on(rank.rank(), memory);
      completes(collectives.run(run.call));
      run.verify();
      completes(collectives.barrier()); // before any rank refills its memory
    }
  }
}
