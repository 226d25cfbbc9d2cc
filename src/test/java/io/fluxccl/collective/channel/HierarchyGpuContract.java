// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.channel;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.DataType;
import io.fluxccl.FluxCclException;
import io.fluxccl.ReduceOp;
import io.fluxccl.collective.CapturedPipeline;
import io.fluxccl.collective.Collective;
import io.fluxccl.collective.CollectiveCall;
import io.fluxccl.collective.Collectives;
import io.fluxccl.collective.CollectivesOptions;
import io.fluxccl.collective.channel.CollectiveVerifier.Shape;
import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.testing.EmulatedGpus;
import io.fluxccl.testing.ParkingStepVerifier;
import io.fluxccl.testing.Rounds;
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.testkit.LocalRanks;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import java.util.function.IntUnaryOperator;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.MethodSource;
import org.junit.jupiter.params.provider.ValueSource;
import reactor.test.StepVerifier;

/** Collectives by hosts on GPUs, real or emulated. */
abstract class HierarchyGpuContract {
  private static final Duration LONG = Duration.ofSeconds(180);

  private static final List<Collective> BY_HOSTS =
      List.of(
          Collective.ALL_REDUCE,
          Collective.ALL_GATHER,
          Collective.REDUCE_SCATTER,
          Collective.BROADCAST,
          Collective.REDUCE,
          Collective.ALL_TO_ALL);

  private static CollectivesOptions byHosts() {
    CollectivesOptions options = CollectivesOptions.DEFAULT;
    for (Collective kind : BY_HOSTS) {
      options = options.withAlgorithm(kind, "hierarchical");
    }
    return options;
  }

  private static Collectives open(LocalRank rank, CollectivesOptions options) {
    return Collectives.create(rank.communicator(), options).join();
  }

  private static void onEachRank(LocalRanks ranks, Consumer<Collectives> body) {
    ranks.run(
        LONG,
        rank -> {
          try (Collectives collectives = open(rank, byHosts())) {
            body.accept(collectives);
          } catch (RuntimeException | AssertionError e) {
            System.out.println(rank.communicator().dump());
            throw e;
          }
        });
  }

  @ParameterizedTest
  @CsvSource({"2,2", "3,2", "3,3"})
  void shouldDoCollectivesOfAnyCountByHosts(int hosts, int ranksPerHost) {
    int nRanks = hosts * ranksPerHost;
    try (LocalRanks ranks = LocalRanks.ofHostsOnGpus(hosts, ranksPerHost)) {
      onEachRank(
          ranks,
          collectives -> {
            CollectiveVerifier trial = new CollectiveVerifier(collectives);
            int round = 0;
            for (int count : new int[] {1, 1023, 4, nRanks > 4 ? 20_011 : 130_001}) {
              for (Collective kind : BY_HOSTS) {
                Shape shape = Shape.of(kind, count).rootedAt(round++ % nRanks);
                trial.run(shape, count % 5);
                trial.run(shape.made(true), 0);
              }
            }
          });
    }
  }

  @ParameterizedTest
  @ValueSource(strings = {"0110", "012210"})
  void shouldSupportEveryRootIfRanksOfHostsAreInterleaved(String hostOf) {
    List<Long> hosts = hostOf.chars().mapToObj(digit -> (long) digit - '0').toList();
    try (LocalRanks ranks = LocalRanks.onHostsOnGpus(hosts)) {
      onEachRank(
          ranks,
          collectives -> {
            CollectiveVerifier trial = new CollectiveVerifier(collectives);
            for (int root = 0; root < hosts.size(); root++) {
              for (Collective kind : BY_HOSTS) {
                trial.run(Shape.of(kind, 5_011).rootedAt(root).made(root % 2 == 1), 1);
              }
            }
          });
    }
  }

  /** Random values whose sums round; expects bits identical to the host device. */
  @Test
  void shouldProduceBitsIdenticalToTheHostDevice() {
    try (LocalRanks gpus = LocalRanks.ofHostsOnGpus(2, 2);
        LocalRanks host = LocalRanks.ofHosts(2, 2)) {
      List<List<byte[]>> onGpus = results(gpus);
      List<List<byte[]>> onHost = results(host);
      for (int rank = 0; rank < 4; rank++) {
        assertThat(onGpus.get(rank)).hasSameSizeAs(onHost.get(rank)).isNotEmpty();
        for (int i = 0; i < onHost.get(rank).size(); i++) {
          assertThat(onGpus.get(rank).get(i))
              .as("result %d of rank %d", i, rank)
              .isEqualTo(onHost.get(rank).get(i));
        }
      }
    }
  }

  private static List<List<byte[]>> results(LocalRanks ranks) {
    List<List<byte[]>> byRank =
        new ArrayList<>(Collections.nCopies(ranks.ranks().size(), List.of()));
    onEachRank(
        ranks,
        collectives -> {
          int rank = collectives.topology().rank();
          List<byte[]> results = new ArrayList<>();
          for (DataType type : DataType.values()) {
            if (PipeAlgorithm.HIERARCHICAL.reduces(type)) {
              for (Collective kind : BY_HOSTS) {
                if (kind.reduces()) {
                  results.add(result(collectives, kind, type, ReduceOp.SUM));
                  results.add(result(collectives, kind, type, other(type)));
                }
              }
            }
          }
          synchronized (byRank) {
            byRank.set(rank, results);
          }
        });
    return byRank;
  }

  /** Returns an operation per type, so that all occur; AVG for floats, as it rounds most. */
  private static ReduceOp other(DataType type) {
    ReduceOp[] others = {ReduceOp.AVG, ReduceOp.PROD, ReduceOp.MIN, ReduceOp.MAX};
    return type.isFloatingPoint() ? ReduceOp.AVG : others[type.ordinal() % others.length];
  }

  private static byte[] result(
      Collectives collectives, Collective kind, DataType type, ReduceOp op) {
    int nRanks = collectives.topology().nRanks();
    int count = 1003;
    int length = count * type.size();
    byte[] values = new byte[nRanks * length];
    new Random(31 * type.ordinal() + collectives.topology().rank()).nextBytes(values);
    if (type.isFloatingPoint()) {
      // Values below 2 and no NaNs, whose bits may differ.
      for (int i = type.size() - 1; i < values.length; i += type.size()) {
        values[i] &= (byte) 0xbf;
      }
    }
    try (DeviceBuffer in = collectives.communicator().device().allocate(values.length);
        DeviceBuffer out = collectives.communicator().device().allocate(length)) {
      in.upload(0, values);
      out.upload(0, new byte[length]);
      CollectiveCall call =
          switch (kind) {
            case ALL_REDUCE -> CollectiveCall.allReduce(in, out, count, type, op);
            case REDUCE_SCATTER -> CollectiveCall.reduceScatter(in, out, count, type, op);
            default -> CollectiveCall.reduce(in, out, count, type, op, 3);
          };
      ParkingStepVerifier.create(collectives.run(call), LONG).expectComplete().verify(LONG);
      return bytes(out, length);
    }
  }

  private static byte[] bytes(DeviceBuffer buffer, int length) {
    byte[] bytes = new byte[length];
    buffer.download(0, bytes);
    return bytes;
  }

  @Test
  void shouldMoveEveryTypeByHosts() {
    try (LocalRanks ranks = LocalRanks.ofHostsOnGpus(2, 2)) {
      onEachRank(
          ranks,
          collectives -> {
            CollectiveVerifier trial = new CollectiveVerifier(collectives);
            for (DataType type : DataType.values()) {
              for (Collective kind : BY_HOSTS) {
                if (!kind.reduces()) {
                  trial.run(Shape.of(kind, 1_001).with(type, ReduceOp.SUM).rootedAt(2), 1);
                }
              }
            }
          });
    }
  }

  @Test
  void shouldReplayCollectivesByHosts() {
    int count = 20_001;
    try (LocalRanks ranks = LocalRanks.ofHostsOnGpus(2, 2)) {
      onEachRank(
          ranks,
          collectives -> {
            int rank = collectives.topology().rank();
            Device device = collectives.communicator().device();
            try (DeviceBuffer one = device.allocate(4L * count);
                DeviceBuffer all = device.allocate(16L * count);
                DeviceBuffer turned = device.allocate(16L * count);
                CapturedPipeline captured =
                    collectives
                        .pipeline()
                        .allGather(one, all, count, DataType.INT32)
                        .allToAll(all, turned, count, DataType.INT32)
                        .reduce(turned, all, 4L * count, DataType.INT32, ReduceOp.SUM, 2)
                        .broadcast(all, 4L * count, DataType.INT32, 2)
                        .reduceScatter(all, one, count, DataType.INT32, ReduceOp.SUM)
                        .capture()) {
              for (int round = 0; round < Rounds.of(3, 7); round++) {
                int first = round;
                one.upload(0, ints(count, i -> first + 10 * rank + i));
                ParkingStepVerifier.create(captured.run(), LONG).expectComplete().verify(LONG);
                // Each rank receives the sum of all ranks' values from every rank.
                assertThat(bytes(one, 4 * count))
                    .isEqualTo(ints(count, i -> 4 * (4 * (first + i) + 60)).array());
              }
            }
          });
    }
  }

  private static ByteBuffer ints(int count, IntUnaryOperator valueOf) {
    ByteBuffer ints = ByteBuffer.allocate(4 * count).order(ByteOrder.LITTLE_ENDIAN);
    for (int i = 0; i < count; i++) {
      ints.putInt(4 * i, valueOf.applyAsInt(i));
    }
    return ints;
  }

  private static CollectiveCall call(Collective kind, DeviceBuffer x, DeviceBuffer y, int count) {
    return switch (kind) {
      case ALL_GATHER -> CollectiveCall.allGather(x, y, count / 4, DataType.INT32);
      case REDUCE_SCATTER ->
          CollectiveCall.reduceScatter(x, y, count / 4, DataType.INT32, ReduceOp.SUM);
      case ALL_TO_ALL -> CollectiveCall.allToAll(x, y, count / 4, DataType.INT32);
      case BROADCAST -> CollectiveCall.broadcast(x, y, count, DataType.INT32, 2);
      case REDUCE -> CollectiveCall.reduce(x, y, count, DataType.INT32, ReduceOp.SUM, 2);
      default -> CollectiveCall.allReduce(x, y, count, DataType.INT32, ReduceOp.SUM);
    };
  }

  /** Without -Plong, emulated GPUs test only two collectives; the host device tests all. */
  static List<Collective> ended() {
    return EmulatedGpus.HERE && !Rounds.LONG
        ? List.of(Collective.ALL_REDUCE, Collective.ALL_TO_ALL)
        : BY_HOSTS;
  }

  @ParameterizedTest
  @MethodSource("ended")
  void shouldTimeOutByHostsIfARankDoesNotCall(Collective kind) {
    CountDownLatch over = new CountDownLatch(4);
    try (LocalRanks ranks = LocalRanks.ofHostsOnGpus(2, 2)) {
      ranks.run(
          LONG,
          rank -> {
            Collectives collectives = open(rank, byHosts());
            DeviceBuffer x = rank.device().allocate(8 << 20);
            DeviceBuffer y = rank.device().allocate(8 << 20);
            if (rank.rank() != 3) {
              // At least one rank waits for rank 3; ranks that need no data of it may complete.
              collectives
                  .run(call(kind, x, y, 2 << 20), Duration.ofMillis(500))
                  .onErrorComplete()
                  .block(LONG);
            }
            assertThat(rank.communicator().failed()).succeedsWithin(LONG);
            assertThat(rank.communicator().failure()).hasMessageContaining(kind.label());
            over.countDown();
            assertThat(over.await(LONG.toSeconds(), TimeUnit.SECONDS)).isTrue();
          });
    }
  }

  @ParameterizedTest
  @MethodSource("ended")
  void shouldEndByHostsWhenARankLeavesInTheMiddle(Collective kind) {
    CountDownLatch done = new CountDownLatch(4);
    try (LocalRanks ranks = LocalRanks.ofHostsOnGpus(2, 2)) {
      ranks.run(
          LONG,
          rank -> {
            Collectives collectives = open(rank, byHosts());
            DeviceBuffer x = rank.device().allocate(1 << 20);
            DeviceBuffer y = rank.device().allocate(1 << 20);
            CollectiveCall call = call(kind, x, y, 1 << 18);
            ParkingStepVerifier.create(collectives.run(call), LONG).expectComplete().verify(LONG);
            done.countDown();
            assertThat(done.await(LONG.toSeconds(), TimeUnit.SECONDS)).isTrue();
            if (rank.rank() == 1) {
              rank.communicator().close();
              return;
            }
            StepVerifier.create(collectives.run(call).repeat())
                .expectError(FluxCclException.class)
                .verify(LONG);
            assertThat(rank.communicator().failure()).isNotNull();
          });
    }
  }

  @Test
  void shouldUseTheHierarchyIfItSendsLess() {
    try (LocalRanks ranks = LocalRanks.ofHostsOnGpus(2, 2)) {
      ranks.run(
          LONG,
          rank -> {
            try (Collectives collectives = open(rank, CollectivesOptions.DEFAULT);
                DeviceBuffer x = rank.device().allocate(4 << 20);
                DeviceBuffer y = rank.device().allocate(4 << 20)) {
              for (Collective kind : BY_HOSTS) {
                // For all-to-all the hierarchy sends as many bytes between hosts, and more inside.
                String expected = kind == Collective.ALL_TO_ALL ? "all-pairs" : "hierarchical";
                CollectiveCall call = call(kind, x, y, 1 << 20);
                assertThat(collectives.algorithmFor(call)).as(kind.label()).isEqualTo(expected);
                assertThat(collectives.algorithmsFor(call)).contains("hierarchical");
              }
              assertThat(
                      collectives.algorithmsFor(
                          CollectiveCall.reduceScatter(
                              x, y, 100, DataType.FLOAT8_E4M3, ReduceOp.SUM)))
                  .containsExactly("all-pairs");
            }
          });
    }
  }
}
