// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.training;

import static io.fluxccl.testing.Outcomes.completes;
import static io.fluxccl.testing.Outcomes.fails;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.Aborted;
import io.fluxccl.InvalidUsage;
import io.fluxccl.concurrent.Closing;
import io.fluxccl.device.ByteView;
import io.fluxccl.device.DeviceView;
import io.fluxccl.device.FloatView;
import io.fluxccl.group.Rank;
import io.fluxccl.testing.OnRanks;
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.training.ParameterSync.Mismatch;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Proxy;
import java.nio.file.Path;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import reactor.core.publisher.Mono;
import reactor.test.StepVerifier;

@OnRanks(4)
class ParameterSyncTest {
  private static final Duration LONG = Duration.ofSeconds(60);
  private static final int LARGE = 300_000;

  /** Parameters of several sizes, with values that only this rank has. */
  private static Map<String, DeviceView> parameters(LocalRank rank) {
    Map<String, DeviceView> parameters = new LinkedHashMap<>();
    parameters.put("bias", floats(rank, 3));
    parameters.put("weight", floats(rank, LARGE));
    parameters.put("steps", ByteView.of(rank.device().allocate(13)));
    return parameters;
  }

  private static FloatView floats(LocalRank rank, int size) {
    FloatView view = rank.device().allocateFloats(size);
    view.put(size - 1, 1 + rank.rank());
    return view;
  }

  private static void close(Map<String, DeviceView> parameters) {
    Closing.all(parameters.values());
  }

  private static void failsWith(Mono<?> run, String parameter, int rank, String... parts) {
    StepVerifier.create(run)
        .expectErrorSatisfies(
            failure -> {
              assertThat(failure).isInstanceOf(Mismatch.class).hasMessageContainingAll(parts);
              assertThat(((Mismatch) failure).parameter()).isEqualTo(parameter);
              assertThat(((Mismatch) failure).differingRank()).isEqualTo(rank);
            })
        .verify(LONG);
  }

  @ParameterizedTest
  @CsvSource({"0, 0, 0, 0, 0", "0, 40, 70, 70, 2"})
  void shouldGiveAllRanksTheParametersThatAreTrainedMost(
      long p0, long p1, long p2, long p3, int root, LocalRank rank) {
    Map<String, DeviceView> parameters = parameters(rank);
    long progress = new long[] {p0, p1, p2, p3}[rank.rank()];
    StepVerifier.create(ParameterSync.of(rank, parameters).restore(progress))
        .expectNext(p3)
        .expectComplete()
        .verify(LONG);
    assertThat(((FloatView) parameters.get("bias")).get(2)).isEqualTo(1 + root);
    assertThat(((FloatView) parameters.get("weight")).get(LARGE - 1)).isEqualTo(1 + root);
    completes(ParameterSync.of(rank, parameters).check());
    rank.awaitAll();
    close(parameters);
  }

  @Test
  void shouldNameTheRankAndTheParameterWithOtherValues(LocalRank rank) {
    Map<String, DeviceView> parameters = parameters(rank);
    ParameterSync sync = ParameterSync.of(rank, parameters);
    sync.restore(0).block(LONG);
    if (rank.rank() == 2) {
      ((FloatView) parameters.get("weight")).put(LARGE / 2, 0.5f);
    }
    failsWith(sync.check(), "weight", 2, "'weight'", "rank 2", "rank 0", "call restore");
    assertThat(sync.restore(0).block(LONG)).isZero(); // the job continues
    completes(sync.check());
    rank.awaitAll();
    close(parameters);
  }

  @Test
  void shouldRefuseOtherSizesBeforeItReplacesAnything(LocalRank rank) {
    Map<String, DeviceView> parameters = parameters(rank);
    if (rank.rank() == 3) {
      parameters.put("weight", floats(rank, LARGE + 1)).close();
    }
    String[] parts = {"rank 0 has FLOAT32 x 300000", "rank 3 has FLOAT32 x 300001"};
    failsWith(ParameterSync.of(rank, parameters).restore(0), "weight", 3, parts);
    assertThat(((FloatView) parameters.get("bias")).get(2)).isEqualTo(1 + rank.rank());
    close(parameters);
  }

  /** Returns a rank whose collectives fail after some calls. */
  private static Rank failingAfter(int calls, LocalRank rank) {
    AtomicInteger left = new AtomicInteger(calls);
    InvocationHandler handler =
        (proxy, method, arguments) -> {
          if (method.getName().equals("collectives") && left.getAndDecrement() == 0) {
            throw Aborted.of(1, "rank 1 died");
          }
          return method.invoke(rank, arguments);
        };
    Class<?>[] types = {Rank.class};
    return (Rank) Proxy.newProxyInstance(Rank.class.getClassLoader(), types, handler);
  }

  /** Rank 1 has the newest parameters, and dies after others have got one of them. */
  @Test
  void shouldNotSpreadParametersThatWereReplacedInPart(LocalRank rank, @TempDir Path folder) {
    Map<String, DeviceView> parameters = parameters(rank);
    FloatView bias = (FloatView) parameters.get("bias");
    Checkpoint checkpoint = Checkpoint.in(folder.resolve("rank-" + rank.rank()), 1);
    completes(checkpoint.write(40, parameters));
    Mono<Long> broken =
        ParameterSync.of(failingAfter(1, rank), parameters).restore(rank.rank() == 1 ? 70 : 40);
    fails(broken, Aborted.class, "rank 1 died");
    assertThat(bias.get(2)).isEqualTo(2);
    // A process without parameters replaces rank 1.
    ParameterSync sync = ParameterSync.of(rank, parameters);
    fails(sync.restore(rank.rank() == 1 ? -1 : 40), InvalidUsage.class, "no rank", "checkpoint");
    if (rank.rank() == 2) {
      checkpoint.read(40, parameters).block(LONG);
    }
    assertThat(sync.restore(rank.rank() == 1 ? -1 : 40).block(LONG)).isEqualTo(40);
    assertThat(bias.get(2)).isEqualTo(3);
    assertThat(((FloatView) parameters.get("weight")).get(LARGE - 1)).isEqualTo(3);
    assertThat(sync.restore(50 + rank.rank()).block(LONG)).isEqualTo(53);
    rank.awaitAll();
    close(parameters);
  }

  /** All ranks have progressed equally far, with other values; rank 0 dies in the middle. */
  @Test
  void shouldNotSpreadAMixtureOfParametersOfEqualProgress(LocalRank rank) {
    Map<String, DeviceView> parameters = parameters(rank);
    Mono<Long> broken = ParameterSync.of(failingAfter(1, rank), parameters).restore(40);
    fails(broken, Aborted.class, "rank 1 died");
    // The bias of rank 0, and each rank's own weight.
    assertThat(((FloatView) parameters.get("bias")).get(2)).isEqualTo(1);
    assertThat(((FloatView) parameters.get("weight")).get(LARGE - 1)).isEqualTo(1 + rank.rank());
    ParameterSync sync = ParameterSync.of(rank, parameters);
    Mono<Long> withoutRank0 = sync.restore(rank.rank() == 0 ? -1 : 40);
    fails(withoutRank0, InvalidUsage.class, "no rank has whole parameters");
    assertThat(sync.restore(rank.rank() == 0 ? 30 : 40).block(LONG)).isEqualTo(30);
    assertThat(((FloatView) parameters.get("weight")).get(LARGE - 1)).isEqualTo(1);
    rank.awaitAll();
    close(parameters);
  }

  /** As after a death in normal training: the survivors' parameters are equal. */
  @Test
  void shouldUseARankIfItsCutRestoreHasChangedNothing(LocalRank rank) {
    Map<String, DeviceView> parameters = parameters(rank);
    ((FloatView) parameters.get("bias")).put(2, 7);
    FloatView weight = (FloatView) parameters.get("weight");
    weight.put(LARGE - 1, rank.rank() == 3 ? 0 : 7);
    Mono<Long> broken =
        ParameterSync.of(failingAfter(1, rank), parameters).restore(rank.rank() == 3 ? 0 : 40);
    fails(broken, Aborted.class, "rank 1 died");
    if (rank.rank() == 1) {
      weight.put(LARGE / 2, 0.5f); // half of a broadcast
    }
    // A new process has replaced rank 0, and rank 2 still has all of them.
    ParameterSync sync = ParameterSync.of(rank, parameters);
    assertThat(sync.restore(rank.rank() == 0 ? -1 : 99).block(LONG)).isEqualTo(40);
    assertThat(weight.get(LARGE - 1)).isEqualTo(7);
    assertThat(weight.get(LARGE / 2)).isZero();
    rank.awaitAll();
    close(parameters);
  }

  /** No survivor has the newest parameters, which were those of rank 1 alone. */
  @Test
  void shouldKeepTheProgressOfRanksThatACutRestoreHasNotReached(LocalRank rank) {
    Map<String, DeviceView> parameters = parameters(rank);
    long progress = 40 + rank.rank();
    Mono<Long> broken =
        ParameterSync.of(failingAfter(0, rank), parameters)
            .restore(rank.rank() == 1 ? 70 : progress);
    fails(broken, Aborted.class, "rank 1 died");
    // A process without parameters replaces rank 1; a broadcast had reached rank 3.
    if (rank.rank() == 3) {
      ((FloatView) parameters.get("bias")).put(2, 2);
    }
    ParameterSync sync = ParameterSync.of(rank, parameters);
    assertThat(sync.restore(rank.rank() == 1 ? -1 : progress).block(LONG)).isEqualTo(42);
    assertThat(((FloatView) parameters.get("bias")).get(2)).isEqualTo(3);
    assertThat(((FloatView) parameters.get("weight")).get(LARGE - 1)).isEqualTo(3);
    rank.awaitAll();
    close(parameters);
  }

  @Test
  void shouldNameAParameterThatARankLacks(LocalRank rank) {
    Map<String, DeviceView> parameters = parameters(rank);
    if (rank.rank() == 1) {
      parameters.remove("steps").close();
    }
    ParameterSync sync = ParameterSync.of(rank, parameters);
    failsWith(sync.restore(0), "steps", 1, "'steps'", "rank 1 has none");
    close(parameters);
  }

  @Test
  @OnRanks(1)
  void shouldHashEveryByte(LocalRank rank) {
    try (DeviceView bytes = ByteView.of(rank.device().allocate(21))) {
      long before = ParameterSync.hash(bytes);
      assertThat(ParameterSync.hash(bytes)).isEqualTo(before);
      for (int i = 0; i < 21; i++) {
        bytes.buffer().upload(i, new byte[] {1});
        assertThat(ParameterSync.hash(bytes)).isNotEqualTo(before);
        bytes.buffer().upload(i, new byte[] {0});
      }
    }
  }
}
