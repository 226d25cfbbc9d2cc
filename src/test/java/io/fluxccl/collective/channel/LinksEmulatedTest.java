// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.channel;

import static io.fluxccl.DataType.FLOAT16;
import static io.fluxccl.DataType.FLOAT32;
import static io.fluxccl.DataType.FLOAT64;
import static io.fluxccl.DataType.INT32;
import static io.fluxccl.ReduceOp.SUM;
import static io.fluxccl.collective.Collective.ALL_REDUCE;
import static io.fluxccl.collective.Collective.BROADCAST;
import static io.fluxccl.collective.CollectiveCall.allGather;
import static io.fluxccl.collective.CollectiveCall.allReduce;
import static io.fluxccl.collective.CollectiveCall.barrier;
import static io.fluxccl.collective.CollectiveCall.broadcast;
import static io.fluxccl.collective.CollectiveCall.reduceScatter;
import static io.fluxccl.collective.CollectiveCall.sendReceive;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.DataType;
import io.fluxccl.FluxCclException;
import io.fluxccl.collective.Collective;
import io.fluxccl.collective.CollectiveCall;
import io.fluxccl.collective.Collectives;
import io.fluxccl.collective.CollectivesOptions;
import io.fluxccl.collective.Registration;
import io.fluxccl.collective.channel.CollectiveVerifier.Shape;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.FloatView;
import io.fluxccl.testing.EmulatedGpus;
import io.fluxccl.testing.TestJvms;
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.testkit.LocalRanks;
import io.fluxccl.testkit.ProcessRank;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentSkipListSet;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/**
 * Algorithms on links that deliver a line of 128 bytes in two halves, as PCIe may. Each test runs
 * in a process of its own, whose fake driver is configured with its links.
 */
@Tag("long")
@EmulatedGpus
class LinksEmulatedTest {
  private static final Duration LONG = Duration.ofSeconds(100);

  /** Without a link of 128-byte lines these names must not appear. */
  private static final String IN_LINES =
      "one-shot-ll128|two-shots-ll128|exchange-ll128|exchange-spread|quantized-int8"
          + "|quantized-f8e4m3|routed-all-to-all|experts-dispatch|experts-combine";

  private static ProcessRank start(Class<?> main, String link, String torn, String... arguments) {
    return TestJvms.of(1, main, arguments)
        .variables(Map.of("FAKE_CUDA_LINK", link, "FAKE_CUDA_TORN_LINES", torn))
        .startRank(0);
  }

  /** Runs all-reduces by a named algorithm until a result is wrong or all rounds are done. */
  static final class Named {
    public static void main(String[] args) {
      CollectivesOptions options =
          CollectivesOptions.DEFAULT.withTimeout(LONG).withAlgorithm(ALL_REDUCE, args[0]);
      boolean[] wrong = new boolean[2];
      try (LocalRanks ranks = LocalRanks.onGpus(2)) {
        ranks.run(LONG, rank -> wrong[rank.rank()] = isWrong(rank, options));
      }
      System.out.println(wrong[0] || wrong[1] ? "wrong" : "right");
      System.exit(0);
    }

    private static boolean isWrong(LocalRank rank, CollectivesOptions options) {
      boolean wrong = false;
      int count = 1000;
      try (Collectives collectives = Collectives.create(rank.communicator(), options).join();
          FloatView values = rank.device().allocateFloats(count)) {
        for (int round = 1; round <= 10; round++) {
          float[] mine = new float[count];
          Arrays.fill(mine, round);
          values.put(mine);
          collectives.allReduce(values, SUM).block(LONG);
          for (float value : values.toArray()) {
            wrong |= value != 2 * round;
          }
        }
        rank.awaitAll();
      }
      return wrong;
    }
  }

  @ParameterizedTest
  @ValueSource(strings = {"one-shot-ll128", "two-shots-ll128"})
  void shouldShowThatLinesWithOneFlagAreWrongOnALinkThatTearsThem(String algorithm) {
    try (ProcessRank whole = start(Named.class, "nvlink", "0", algorithm);
        ProcessRank torn = start(Named.class, "nvlink", "1", algorithm)) {
      assertThat(whole.readLine()).isEqualTo("right");
      assertThat(torn.readLine()).isEqualTo("wrong");
    }
  }

  @ParameterizedTest
  @ValueSource(
      strings = {"one-shot-ll8", "two-shots-ll8", "two-shots-sentinel", "staggered-staged"})
  void shouldBeRightOnALinkThatTearsLinesIfEachWordHasItsFlag(String algorithm) {
    try (ProcessRank torn = start(Named.class, "pcie", "1", algorithm)) {
      assertThat(torn.readLine()).isEqualTo("right");
    }
  }

  /** Runs every collective by its default algorithm on three ranks and prints the names. */
  static final class Chosen {
    private static final ConcurrentSkipListSet<String> NAMES = new ConcurrentSkipListSet<>();

    public static void main(String[] args) throws IOException {
      try (LocalRanks ranks = LocalRanks.onGpus(3)) {
        ranks.run(LONG, Chosen::run);
      }
      NAMES.forEach(System.out::println);
      System.out.println("end");
      Refused.print();
      System.exit(0);
    }

    private static void run(LocalRank rank) {
      CollectivesOptions options = CollectivesOptions.DEFAULT.withTimeout(LONG);
      try (Collectives collectives = Collectives.create(rank.communicator(), options).join()) {
        CollectiveVerifier trial = new CollectiveVerifier(collectives);
        for (Collective kind : Collective.plain()) {
          for (int count : new int[] {1, 33, 130, 1001, 4099, 40_003}) {
            for (DataType type : List.of(FLOAT16, INT32, FLOAT64)) {
              trial.run(Shape.of(kind, count).with(type, SUM), 0);
            }
          }
        }
        collectNames(rank, collectives);
        rank.awaitAll();
      }
    }

    private static void collectNames(LocalRank rank, Collectives collectives) {
      try (DeviceBuffer in = rank.device().allocate(3 << 20);
          DeviceBuffer out = rank.device().allocate(3 << 20);
          Registration inKnown = collectives.register(in).join();
          Registration outKnown = collectives.register(out).join()) {
        for (int count = 1; count <= 1 << 18; count *= 8) {
          for (CollectiveCall call :
              List.of(
                  allReduce(in, out, count, FLOAT32, SUM),
                  reduceScatter(in, out, count, FLOAT32, SUM),
                  allReduce(in, out, count, INT32, SUM),
                  allGather(in, out, count, FLOAT32),
                  broadcast(in, out, count, FLOAT32, 2),
                  sendReceive(in, count, 0, out, count, 0, FLOAT32),
                  barrier())) {
            NAMES.add(collectives.algorithmFor(call));
            NAMES.addAll(collectives.algorithmsFor(call));
          }
        }
      }
    }
  }

  /** Names an algorithm that needs lines: by options, by prefer, and by a tuning file. */
  static final class Refused {
    static void print() throws IOException {
      Path tuning = Files.createTempFile("tuning", ".properties");
      Files.writeString(
          tuning,
          "fluxccl-tuning=2\nall-reduce.cuda.2.1.unregistered.half=1048576 two-shots-ll128\n");
      try (LocalRanks ranks = LocalRanks.onGpus(2)) {
        ranks.run(
            LONG,
            rank -> {
              CollectivesOptions options = CollectivesOptions.DEFAULT.withTimeout(LONG);
              List<String> failures =
                  List.of(
                      failure(rank, options.withAlgorithm(ALL_REDUCE, "one-shot-ll128")),
                      failure(rank, options.withTuning(tuning).withTag(77)),
                      failure(rank, options.withTag(78)));
              if (rank.rank() == 0) {
                failures.forEach(System.out::println);
              }
              rank.awaitAll();
            });
      }
    }

    private static String failure(LocalRank rank, CollectivesOptions options) {
      try (Collectives collectives = Collectives.create(rank.communicator(), options).join()) {
        collectives.prefer(BROADCAST, Optional.of("exchange-ll128"));
        return "it succeeded";
      } catch (RuntimeException e) {
        FluxCclException failure = FluxCclException.from(e);
        return failure.code() + " " + failure.getMessage();
      }
    }
  }

  @Test
  void shouldBeRightWithoutLinesAndRefuseThemIfTheLinkIsNotNvlink() {
    try (ProcessRank process = start(Chosen.class, "pcie", "1")) {
      TreeSet<String> names = new TreeSet<>();
      for (String line = process.readLine(); !line.equals("end"); line = process.readLine()) {
        names.add(line);
      }
      assertThat(names).contains("one-shot-ll8", "two-shots-sentinel", "exchange-ll8");
      assertThat(names).noneMatch(name -> name.matches(IN_LINES));
      assertThat(process.readLine())
          .startsWith("INVALID_USAGE")
          .contains("one-shot-ll128", "0000:a0:00.0", "0000:a1:00.0", "FLUXCCL_GPU_LINK");
      assertThat(process.readLine())
          .startsWith("INVALID_USAGE")
          .contains("two-shots-ll128", "tuning", "NVLink");
      assertThat(process.readLine()).startsWith("INVALID_USAGE").contains("exchange-ll128");
    }
  }
}
