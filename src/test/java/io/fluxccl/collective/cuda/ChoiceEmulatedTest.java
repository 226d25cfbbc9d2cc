// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.cuda;

import static io.fluxccl.DataType.FLOAT16;
import static io.fluxccl.DataType.UINT8;
import static io.fluxccl.ReduceOp.SUM;
import static io.fluxccl.testing.OnRanks.Runner.lane;
import static io.fluxccl.testing.Outcomes.completes;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.DataType;
import io.fluxccl.ReduceOp;
import io.fluxccl.collective.Collective;
import io.fluxccl.collective.CollectiveCall;
import io.fluxccl.collective.Collectives;
import io.fluxccl.collective.CollectivesOptions;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.testing.EmulatedGpus;
import io.fluxccl.testing.OnRanks;
import io.fluxccl.testing.Rounds;
import io.fluxccl.testkit.LocalRank;
import java.util.Optional;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** The algorithms that GPUs of one host choose by size, registration and options. */
@EmulatedGpus
@OnRanks(seconds = 100)
class ChoiceEmulatedTest {
  @ParameterizedTest(name = "{0} ranks")
  @ValueSource(ints = {2, 3, 4, 8})
  @OnRanks(OnRanks.FIRST_ARGUMENT)
  void shouldSendSmallCallsInPacketsThatCarryTheirFlags(
      int nRanks, LocalRank rank, Collectives collectives) {
    DeviceBuffer in = rank.device().allocate(4 << 20);
    DeviceBuffer out = rank.device().allocate(4 << 20);
    collectives.register(in).join();
    collectives.register(out).join();
    for (int bytes : new int[] {64, 1 << 10, 4 << 10, 16 << 10}) {
      int count = bytes / FLOAT16.size();
      for (CollectiveCall call :
          new CollectiveCall[] {
            CollectiveCall.allReduce(in, out, count, FLOAT16, SUM),
            CollectiveCall.reduceScatter(in, out, count / nRanks, FLOAT16, SUM)
          }) {
        assertThat(collectives.algorithmFor(call))
            .as("%s of %d bytes", call, bytes)
            .matches("(one-shot|two-shots)-(ll8|ll128|sentinel)");
      }
    }
  }

  @Test
  @OnRanks(8)
  void shouldChooseBySizeAndRegistration(LocalRank rank, Collectives collectives) {
    int most = Rounds.of(16, 64) << 20;
    DeviceBuffer input = rank.device().allocate(8 << 20);
    DeviceBuffer output = rank.device().allocate(most);
    assertThat(chosen(collectives, input, output, 1 << 10)).isEqualTo("exchange-ll8");
    assertThat(chosen(collectives, input, output, 1 << 20)).isEqualTo("exchange-ll128");
    assertThat(chosen(collectives, input, output, most)).isEqualTo("exchange-ll128");
    collectives.register(output).join();
    assertThat(chosen(collectives, input, output, 1 << 20)).isEqualTo("exchange-ll128");
    assertThat(chosen(collectives, input, output, 16 << 20)).isEqualTo("exchange-push");
    CollectiveCall barrier = CollectiveCall.barrier();
    assertThat(collectives.algorithmFor(barrier)).isEqualTo("exchange-ll8");
  }

  private static String chosen(
      Collectives collectives, DeviceBuffer input, DeviceBuffer output, int total) {
    return collectives.algorithmFor(CollectiveCall.allGather(input, output, total / 8, UINT8));
  }

  @Test
  void shouldPreferCopyEnginesWhereTheyExist(LocalRank rank) {
    CollectivesOptions options = CollectivesOptions.DEFAULT.withCopyEngines(true);
    Collectives collectives = lane(rank, options);
    DeviceBuffer buffer = rank.device().allocate(1 << 16);
    CollectiveCall gather = CollectiveCall.allGather(buffer, buffer, 1 << 10, UINT8);
    assertThat(collectives.algorithmFor(gather)).isEqualTo("exchange-ll8");
    collectives.register(buffer).join();
    assertThat(collectives.algorithmFor(gather)).isEqualTo("exchange-copy");
    collectives.prefer(Collective.ALL_GATHER, Optional.of("exchange-push"));
    assertThat(collectives.algorithmFor(gather)).isEqualTo("exchange-push");
    CollectiveCall broadcast = CollectiveCall.broadcast(buffer, buffer, 1 << 10, UINT8, 0);
    assertThat(collectives.algorithmFor(broadcast)).isEqualTo("exchange-ll8");
  }

  @Test
  void shouldReserveMemoryForTheLargestRegisteredBuffer(LocalRank rank, Collectives collectives) {
    DeviceBuffer small = rank.device().allocate(1000);
    DeviceBuffer large = rank.device().allocate(4 << 20);
    CollectiveCall call =
        CollectiveCall.allReduce(large, large, 1 << 20, DataType.INT32, ReduceOp.MAX);
    collectives.register(small).join();
    assertThat(collectives.algorithmFor(call)).isEqualTo("staggered-staged");
    collectives.register(large).join();
    assertThat(collectives.algorithmFor(call)).isEqualTo("staggered-direct");
    completes(collectives.run(call));
  }
}
