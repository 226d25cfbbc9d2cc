// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.cuda;

import static io.fluxccl.testing.OnRanks.Runner.lane;
import static io.fluxccl.testing.Outcomes.fails;
import static io.fluxccl.testing.Outcomes.refuses;
import static org.assertj.core.api.Assertions.assertThat;
import static org.mockito.Mockito.mock;
import static org.mockito.Mockito.withSettings;

import io.fluxccl.DataType;
import io.fluxccl.InvalidUsage;
import io.fluxccl.collective.AlgorithmFamily;
import io.fluxccl.collective.Collective;
import io.fluxccl.collective.Collectives;
import io.fluxccl.collective.CollectivesOptions;
import io.fluxccl.collective.RandomCollectiveCase;
import io.fluxccl.collective.channel.ChannelFamily;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.testing.EmulatedGpus;
import io.fluxccl.testing.OnRanks;
import io.fluxccl.testkit.LocalRank;
import java.time.Duration;
import java.util.List;
import java.util.Random;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Limits of the blocks that a lane launches, and its use of copy engines. */
@EmulatedGpus
@OnRanks(seconds = 100)
class BudgetEmulatedTest {
  private static final Duration LONG = Duration.ofSeconds(100);
  private static final int COUNT = 60_000;

  /** Records the largest grid that the algorithms of a family launch. */
  private static WrappedFamily measured(AlgorithmFamily family, AtomicInteger blocks) {
    return new WrappedFamily("measured-", family, stream -> measured(stream, blocks));
  }

  private static DeviceStream measured(DeviceStream stream, AtomicInteger blocks) {
    return mock(
        stream.getClass(),
        withSettings()
            .spiedInstance(stream)
            .defaultAnswer(
                invocation -> {
                  Object[] arguments = invocation.getArguments();
                  if (invocation.getMethod().getName().equals("launch") && arguments.length > 1) {
                    blocks.accumulateAndGet((Integer) arguments[1], Math::max);
                  }
                  return invocation.callRealMethod();
                }));
  }

  private static CollectivesOptions measured(int maxBlocks, AtomicInteger blocks) {
    return CollectivesOptions.DEFAULT
        .withTimeout(LONG)
        .withMaxBlocks(maxBlocks)
        .withFamily(measured(new MappedGpuFamily(), blocks))
        .withFamily(measured(new ChannelFamily(), blocks));
  }

  @ParameterizedTest
  @CsvSource({"2, 1", "2, 3", "3, 1", "3, 2"})
  @OnRanks(OnRanks.FIRST_ARGUMENT)
  void shouldLaunchNoMoreBlocksThanAllowed(int nRanks, int maxBlocks, LocalRank rank) {
    AtomicInteger blocks = new AtomicInteger();
    Collectives collectives = lane(rank, measured(maxBlocks, blocks));
    DeviceBuffer memory = rank.device().allocate(RandomCollectiveCase.memory(nRanks, COUNT));
    for (int count : new int[] {16, 4000, COUNT}) {
      for (Collective which :
          List.of(Collective.ALL_REDUCE, Collective.ALL_GATHER, Collective.SEND_RECEIVE)) {
        RandomCollectiveCase.Run run =
            new RandomCollectiveCase(new Random(count), nRanks, which, 8)
                .with(DataType.UINT8, count, false)
                .on(rank.rank(), memory);
        collectives.run(run.call).block(LONG);
        run.verify();
        collectives.barrier().block(LONG); // before any rank refills its memory
        assertThat(blocks.get()).isBetween(1, maxBlocks);
      }
    }
  }

  @Test
  void shouldRefuseBudgetsThatDifferOrAreNegative(LocalRank rank) {
    CollectivesOptions options = CollectivesOptions.DEFAULT.withMaxBlocks(8 + rank.rank());
    fails(Collectives.create(rank.communicator(), options), InvalidUsage.class, "maxBlocks=8");
    refuses(() -> options.withMaxBlocks(-1), "maxBlocks=-1");
  }
}
