// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import static io.fluxccl.ReduceOp.AVG;
import static io.fluxccl.ReduceOp.MAX;
import static io.fluxccl.ReduceOp.SUM;
import static io.fluxccl.testing.OnRanks.Runner.lane;
import static io.fluxccl.testing.Outcomes.fails;
import static io.fluxccl.testing.Outcomes.failsJob;
import static io.fluxccl.testing.Outcomes.refuses;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.RemoteFailure;
import io.fluxccl.Timeout;
import io.fluxccl.testing.OnRanks;
import io.fluxccl.testkit.LocalRank;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import org.junit.jupiter.api.Test;
import reactor.core.Disposable;
import reactor.core.publisher.Mono;
import reactor.core.scheduler.Schedulers;

/** Operations on arrays, numbers and bytes. */
@OnRanks(value = 3, seconds = 120)
abstract class ReactiveOperationsContract {
  private static final Duration LONG = Duration.ofSeconds(60);
  private static final int MANY = 100_000;

  @Test
  void shouldReduceArraysAndNumbers(LocalRank rank, Collectives all) {
    int i = rank.rank();
    float[] floats = {i, 1};
    Mono<float[]> sum = all.allReduce(floats, SUM);
    assertThat(sum.block(LONG)).containsExactly(3, 3);
    assertThat(floats).containsExactly(i, 1);
    floats[0] = 7;
    assertThat(sum.block(LONG)).as("read on subscription").containsExactly(21, 3);
    assertThat(all.allReduce(new double[] {i, -i}, AVG).block(LONG)).containsExactly(1, -1);
    assertThat(all.allReduce(new long[] {1L << 40, i}, SUM).block(LONG))
        .containsExactly(3L << 40, 3);
    assertThat(all.allReduce(new int[] {i}, MAX).block(LONG)).containsExactly(2);
    assertThat(all.allReduce(i * 0.5, AVG).block(LONG)).isEqualTo(0.5);
    assertThat(all.allReduce(i, SUM).block(LONG)).isEqualTo(3L);
    assertThat(all.allReduce(new float[0], SUM).block(LONG)).isEmpty();
    float[] many = new float[MANY];
    Arrays.fill(many, i + 1);
    assertThat(all.allReduce(many, SUM).block(LONG)).hasSize(MANY).containsOnly(6);
  }

  @Test
  void shouldCopyALargeResultOnAThreadThatMayBlock(LocalRank rank, Collectives all) {
    Mono<Boolean> mayBlock =
        all.allReduce(new float[MANY], SUM).map(sum -> !Schedulers.isInNonBlockingThread());
    for (int i = 0; i < 20; i++) {
      assertThat(mayBlock.block(LONG)).isTrue();
    }
  }

  @Test
  void shouldReduceByName(LocalRank rank) {
    try (NamedCollectives named = rank.collectives().named().join()) {
      Mono<Double> loss = named.of("loss").allReduce(rank.rank() + 1.0, AVG);
      Mono<float[]> sums = named.of("sums").allReduce(new float[] {1}, SUM);
      boolean isFirst = rank.rank() == 0;
      Mono<String> both =
          isFirst
              ? Mono.zip(loss, sums, (a, b) -> a + " " + b[0])
              : Mono.zip(sums, loss, (b, a) -> a + " " + b[0]);
      assertThat(both.block(LONG)).isEqualTo("2.0 3.0");
    }
  }

  @Test
  void shouldRunThePartOfASubscriberThatHasCancelled(LocalRank rank, Collectives all) {
    Mono<float[]> sum = all.allReduce(new float[] {1}, SUM);
    if (rank.rank() == 1) {
      Disposable subscription = sum.subscribe();
      subscription.dispose();
    } else {
      assertThat(sum.block(LONG)).containsExactly(3);
    }
    all.barrier().block(LONG);
  }

  @Test
  void shouldFailIfLengthsDiffer(LocalRank rank, Collectives all) {
    float[] values = new float[rank.rank() == 1 ? 2 : 3];
    all.allReduce(values, SUM).subscribe(null, failure -> {});
    failsJob(rank, FluxCclException.class, "count=2", "count=3");
  }

  @Test
  void shouldFailBothIfLengthsDifferByName(LocalRank rank) {
    try (NamedCollectives named = rank.collectives().named().join()) {
      int[] values = new int[rank.rank() == 1 ? 2 : 3];
      fails(named.of("x").allReduce(values, SUM), InvalidUsage.class, "'x'", "count=2", "count=3");
      assertThat(named.of("y").allReduce(1, SUM).block(LONG)).isEqualTo(3L);
    }
  }

  @Test
  void shouldGatherAndBroadcastBytesOfAnyLength(LocalRank rank, Collectives all) {
    int i = rank.rank();
    List<byte[]> gathered = all.allGatherBytes(new byte[i * 1000]).block(LONG);
    assertThat(gathered).extracting(each -> each.length).containsExactly(0, 1000, 2000);
    byte[] own = i == 2 ? new byte[] {42} : null;
    assertThat(all.broadcastBytes(own, 2).block(LONG)).containsExactly(42);
    Mono<List<String>> names =
        all.allGatherBytes(
            "rank " + i,
            text -> text.getBytes(StandardCharsets.UTF_8),
            bytes -> new String(bytes, StandardCharsets.UTF_8));
    assertThat(names.block(LONG)).containsExactly("rank 0", "rank 1", "rank 2");
    Mono<Integer> number =
        all.broadcastBytes(
            i == 0 ? 7 : null, 0, value -> new byte[] {value.byteValue()}, bytes -> (int) bytes[0]);
    assertThat(number.block(LONG)).isEqualTo(7);
    refuses(() -> all.broadcastBytes(own, 3), "root=3");
    refuses(() -> all.allGatherBytes(null), "value");
  }

  @Test
  void shouldNameTheRankThatCanNotEncode(LocalRank rank, Collectives all) {
    Mono<List<String>> failing =
        all.allGatherBytes(
            "x",
            text -> {
              if (rank.rank() == 1) {
                throw new IllegalStateException("as the test wants");
              }
              return new byte[1];
            },
            bytes -> "");
    if (rank.rank() == 1) {
      fails(failing, FluxCclException.class, "as the test wants");
    } else {
      fails(failing, RemoteFailure.class, "as the test wants");
    }
    assertThat(all.allReduce(1, SUM).block(LONG)).isEqualTo(3L);
  }

  @Test
  void shouldNameTheRankThatDoesNotGather(LocalRank rank) {
    CollectivesOptions options =
        CollectivesOptions.DEFAULT.withTimeout(Duration.ofSeconds(2)).withSetupTimeout(LONG);
    try (Collectives all = lane(rank, options)) {
      if (rank.rank() != 1) {
        fails(all.allGatherBytes(new byte[1]), Timeout.class, "rank 1");
      }
      rank.awaitAll();
    }
  }
}
