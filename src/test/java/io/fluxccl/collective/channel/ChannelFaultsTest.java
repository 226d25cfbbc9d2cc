// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.channel;

import static io.fluxccl.DataType.FLOAT32;
import static io.fluxccl.DataType.FLOAT8_E5M2;
import static io.fluxccl.DataType.INT32;
import static io.fluxccl.ReduceOp.SUM;
import static io.fluxccl.collective.Collective.ALL_REDUCE;
import static io.fluxccl.collective.CollectiveCall.allReduce;
import static io.fluxccl.collective.channel.BetweenHosts.LONG;
import static io.fluxccl.collective.channel.BetweenHosts.complete;
import static io.fluxccl.collective.channel.BetweenHosts.open;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.FluxCclException;
import io.fluxccl.Timeout;
import io.fluxccl.collective.CollectiveCall;
import io.fluxccl.collective.Collectives;
import io.fluxccl.collective.CollectivesOptions;
import io.fluxccl.collective.channel.CollectiveVerifier.Shape;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.host.HostMemory;
import io.fluxccl.testing.ParkingStepVerifier;
import io.fluxccl.testing.Rounds;
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.testkit.Ranks;
import java.time.Duration;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Collectives between hosts when ranks close, overwrite buffers, or do not call. */
@Ranks(value = 4, hosts = 2, seconds = 180, leakCheck = false)
class ChannelFaultsTest {
  @ParameterizedTest
  @ValueSource(strings = {"all-pairs", "ring", "hierarchical"})
  void shouldTimeOutOnAllRanksIfOneDoesNotCall(String algorithm, LocalRank rank) {
    Duration limit = rank.rank() == 0 ? Duration.ofMillis(300) : LONG;
    CollectivesOptions options = CollectivesOptions.DEFAULT.withAlgorithm(ALL_REDUCE, algorithm);
    Collectives collectives = open(rank, options.withTimeout(limit).withSetupTimeout(LONG));
    rank.awaitAll();
    if (rank.rank() != 3) {
      DeviceBuffer x = rank.device().allocate(4 << 20);
      ParkingStepVerifier.create(collectives.allReduce(x, FLOAT32, SUM), LONG)
          .expectError(Timeout.class)
          .verify(LONG);
    }
    assertThat(rank.communicator().failed()).succeedsWithin(LONG).isInstanceOf(Timeout.class);
  }

  @Test
  @Ranks(value = 3, hosts = 3, seconds = 180, leakCheck = false)
  void shouldEndWhenAPeerLeavesWhileOthersWaitForIt(LocalRank rank) {
    Collectives collectives = open(rank, CollectivesOptions.DEFAULT);
    rank.awaitAll();
    if (rank.rank() == 1) {
      rank.communicator().close();
      return;
    }
    DeviceBuffer x = rank.device().allocate(4 << 20);
    ParkingStepVerifier.create(collectives.allReduce(x, FLOAT32, SUM), LONG)
        .expectErrorSatisfies(
            e -> {
              assertThat(e).isInstanceOf(FluxCclException.class);
              assertThat(e).isNotInstanceOf(Timeout.class);
              assertThat(e).hasMessageContaining("rank 1");
            })
        .verify(LONG);
  }

  @Test
  void shouldAllowEveryRankToCloseAsSoonAsItIsDone(LocalRank rank) {
    for (int round = 0; round < Rounds.of(4, 10); round++) {
      // An odd number of messages in each direction leaves credits in flight at the end.
      try (Collectives collectives = open(rank, CollectivesOptions.DEFAULT)) {
        CollectiveVerifier trial = new CollectiveVerifier(collectives);
        for (int i = 0; i <= round; i++) {
          trial.run(Shape.of(ALL_REDUCE, 1000 * round + 7), 0);
        }
      }
    }
    assertThat(rank.communicator().failure()).isNull();
  }

  @Test
  @Ranks(value = 3, hosts = 3, seconds = 180, leakCheck = false)
  void shouldAllowOverwritingTheInputAfterCompletion(LocalRank rank, Collectives collectives) {
    int count = 40_000;
    DeviceBuffer in = rank.device().allocate(count * 4L);
    DeviceBuffer out = rank.device().allocate(count * 4L * 3);
    for (int round = 1; round < Rounds.of(10, 40); round++) {
      for (int i = 0; i < count; i++) {
        HostMemory.putInt(in.address() + i * 4L, round * 10 + rank.rank());
      }
      complete(collectives.allGather(in, out, count, INT32));
      HostMemory.fill(in.address(), count * 4L, (byte) 0x77);
      for (int i = 0; i < 3 * count; i++) {
        int value = HostMemory.getInt(out.address() + i * 4L);
        if (value != round * 10 + i / count) {
          assertThat(value).as("element %d", i).isEqualTo(round * 10 + i / count);
        }
      }
    }
  }

  @Test
  void shouldUseAllPairsForSmallFloatsBetweenHosts(LocalRank rank, Collectives collectives) {
    DeviceBuffer x = rank.device().allocate(4 << 20);
    // All-pairs rounds small floats only once.
    CollectiveCall small = allReduce(x, x, 1 << 20, FLOAT8_E5M2, SUM);
    assertThat(collectives.algorithmFor(small)).isEqualTo("all-pairs");
  }
}
