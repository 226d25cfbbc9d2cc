// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.cuda;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.mockito.Mockito.mock;
import static org.mockito.Mockito.withSettings;

import io.fluxccl.DataType;
import io.fluxccl.InvalidUsage;
import io.fluxccl.ReduceOp;
import io.fluxccl.collective.AlgorithmFamily;
import io.fluxccl.collective.AlgorithmSet;
import io.fluxccl.collective.BoundCall;
import io.fluxccl.collective.Collective;
import io.fluxccl.collective.CollectiveAlgorithm;
import io.fluxccl.collective.CollectiveCall;
import io.fluxccl.collective.Collectives;
import io.fluxccl.collective.CollectivesOptions;
import io.fluxccl.collective.PeerConnections;
import io.fluxccl.collective.RankTopology;
import io.fluxccl.collective.Registration;
import io.fluxccl.collective.channel.ChannelFamily;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.testing.EmulatedGpus;
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.testkit.LocalRanks;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Limits of the blocks that a lane launches, and its use of copy engines. */
@EmulatedGpus
class BudgetEmulatedTest {
  private static final Duration LONG = Duration.ofSeconds(100);
  private static final int COUNT = 60_000;

  /** Wraps the algorithms of a family and records the largest grid that they launch. */
  private record Measured(AlgorithmFamily family, AtomicInteger blocks) implements AlgorithmFamily {
    @Override
    public String name() {
      return "measured-" + family.name();
    }

    @Override
    public List<String> description() {
      return List.of();
    }

    @Override
    public boolean supports(RankTopology topology) {
      return family.supports(topology);
    }

    @Override
    public CompletableFuture<AlgorithmSet> prepare(PeerConnections peers) {
      return family.prepare(peers).thenApply(set -> new MeasuredSet(set, blocks));
    }
  }

  private record MeasuredSet(AlgorithmSet set, AtomicInteger blocks) implements AlgorithmSet {
    @Override
    public List<CollectiveAlgorithm> algorithms() {
      return set.algorithms().stream()
          .<CollectiveAlgorithm>map(algorithm -> new MeasuredAlgorithm(algorithm, blocks))
          .toList();
    }

    @Override
    public CompletableFuture<Void> reserve(long bytes) {
      return set.reserve(bytes);
    }

    @Override
    public void registered(Registration registration) {
      set.registered(registration);
    }

    @Override
    public void close() {
      set.close();
    }
  }

  private record MeasuredAlgorithm(CollectiveAlgorithm algorithm, AtomicInteger blocks)
      implements CollectiveAlgorithm {
    @Override
    public String name() {
      return "measured-" + algorithm.name();
    }

    @Override
    public boolean supports(BoundCall call) {
      return algorithm.supports(call);
    }

    @Override
    public double estimate(BoundCall call) {
      return algorithm.estimate(call) / 1000;
    }

    @Override
    public void enqueue(DeviceStream stream, BoundCall call) {
      algorithm.enqueue(
          mock(
              stream.getClass(),
              withSettings()
                  .spiedInstance(stream)
                  .defaultAnswer(
                      invocation -> {
                        Object[] arguments = invocation.getArguments();
                        if (invocation.getMethod().getName().equals("launch")
                            && arguments.length > 1) {
                          blocks.accumulateAndGet((Integer) arguments[1], Math::max);
                        }
                        return invocation.callRealMethod();
                      })),
          call);
    }
  }

  private static CollectivesOptions measured(int maxBlocks, AtomicInteger blocks) {
    return CollectivesOptions.DEFAULT
        .withTimeout(LONG)
        .withMaxBlocks(maxBlocks)
        .withFamily(new Measured(new ExchangeFamily(), blocks))
        .withFamily(new Measured(new ReduceFamily(), blocks))
        .withFamily(new Measured(new ChannelFamily(), blocks));
  }

  @ParameterizedTest
  @CsvSource({"2, 1", "2, 3", "3, 1", "3, 2"})
  void shouldLaunchNoMoreBlocksThanAllowed(int nRanks, int maxBlocks) {
    try (LocalRanks ranks = LocalRanks.onGpus(nRanks)) {
      ranks.run(
          LONG,
          rank -> {
            AtomicInteger blocks = new AtomicInteger();
            try (Collectives collectives =
                    Collectives.create(rank.communicator(), measured(maxBlocks, blocks)).join();
                DeviceBuffer input = rank.device().allocate((long) nRanks * COUNT);
                DeviceBuffer output = rank.device().allocate((long) nRanks * COUNT)) {
              for (int count : new int[] {16, 4000, COUNT}) {
                reduceAndExchange(rank, collectives, input, output, count);
                assertThat(blocks.get()).isBetween(1, maxBlocks);
              }
            }
          });
    }
  }

  private static void reduceAndExchange(
      LocalRank rank, Collectives collectives, DeviceBuffer input, DeviceBuffer output, int count) {
    int nRanks = rank.bootstrap().nRanks();
    int me = rank.rank();
    int ahead = (me + 1) % nRanks;
    int behind = (me + nRanks - 1) % nRanks;
    DataType bytes = DataType.UINT8;
    fill(input, me + 1, nRanks * count);
    collectives
        .run(CollectiveCall.allReduce(input, output, count, bytes, ReduceOp.SUM))
        .block(LONG);
    assertFilled(output, 0, count, nRanks * (nRanks + 1) / 2);
    collectives.run(CollectiveCall.allGather(input, output, count, bytes)).block(LONG);
    for (int peer = 0; peer < nRanks; peer++) {
      assertFilled(output, peer * count, count, peer + 1);
    }
    collectives.sendReceive(input, count, ahead, output, count, behind, bytes).block(LONG);
    assertFilled(output, 0, count, behind + 1);
  }

  private static void fill(DeviceBuffer buffer, int value, int bytes) {
    ByteBuffer all = ReduceTestData.allocate(bytes);
    while (all.hasRemaining()) {
      all.put((byte) value);
    }
    buffer.upload(0, all.flip());
  }

  private static void assertFilled(DeviceBuffer buffer, int offset, int bytes, int value) {
    ByteBuffer all = ReduceTestData.download(buffer, offset, bytes);
    for (int i = 0; i < bytes; i++) {
      assertThat(all.get(i)).as("byte %d", i).isEqualTo((byte) value);
    }
  }

  @Test
  void shouldPreferCopyEnginesWhereTheyExist() {
    try (LocalRanks ranks = LocalRanks.onGpus(2)) {
      ranks.run(
          LONG,
          rank -> {
            CollectivesOptions options = CollectivesOptions.DEFAULT.withCopyEngines(true);
            try (Collectives collectives = Collectives.create(rank.communicator(), options).join();
                DeviceBuffer buffer = rank.device().allocate(1 << 16)) {
              CollectiveCall gather =
                  CollectiveCall.allGather(buffer, buffer, 1 << 10, DataType.UINT8);
              assertThat(collectives.algorithmFor(gather)).isEqualTo("exchange-ll8");
              collectives.register(buffer).join();
              assertThat(collectives.algorithmFor(gather)).isEqualTo("exchange-copy");
              collectives.prefer(Collective.ALL_GATHER, Optional.of("exchange-push"));
              assertThat(collectives.algorithmFor(gather)).isEqualTo("exchange-push");
              CollectiveCall broadcast =
                  CollectiveCall.broadcast(buffer, buffer, 1 << 10, DataType.UINT8, 0);
              assertThat(collectives.algorithmFor(broadcast)).isEqualTo("exchange-ll8");
            }
          });
    }
  }

  @Test
  void shouldRefuseBudgetsThatDifferOrAreNegative() {
    assertThatThrownBy(() -> CollectivesOptions.DEFAULT.withMaxBlocks(-1))
        .isInstanceOf(InvalidUsage.class)
        .hasMessageContaining("maxBlocks=-1");
    try (LocalRanks ranks = LocalRanks.onGpus(2)) {
      ranks.run(
          LONG,
          rank ->
              assertThat(
                      Collectives.create(
                          rank.communicator(),
                          CollectivesOptions.DEFAULT.withMaxBlocks(8 + rank.rank())))
                  .failsWithin(LONG)
                  .withThrowableThat()
                  .withCauseInstanceOf(InvalidUsage.class)
                  .withMessageContaining("maxBlocks=8"));
    }
  }
}
