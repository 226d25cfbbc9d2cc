// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.cuda;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.DataType;
import io.fluxccl.ReduceOp;
import io.fluxccl.collective.CollectiveCall;
import io.fluxccl.collective.Collectives;
import io.fluxccl.collective.Registration;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.testing.EmulatedGpus;
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.testkit.LocalRanks;
import java.time.Duration;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** The algorithms that are chosen by default. */
@EmulatedGpus
class ReduceChoiceEmulatedTest {
  private static final int MOST = 4 << 20;

  @ParameterizedTest(name = "{0} ranks")
  @ValueSource(ints = {2, 3, 4, 8})
  void shouldSendSmallCallsInPacketsThatCarryTheirFlags(int nRanks) {
    try (LocalRanks ranks = LocalRanks.onGpus(nRanks)) {
      ranks.run(Duration.ofSeconds(60), ReduceChoiceEmulatedTest::check);
    }
  }

  private static void check(LocalRank rank) {
    int n = rank.communicator().bootstrap().nRanks();
    try (Collectives collectives = Collectives.create(rank.communicator()).join();
        DeviceBuffer input = rank.device().allocate(MOST);
        DeviceBuffer output = rank.device().allocate(MOST);
        Registration in = collectives.register(input).join();
        Registration out = collectives.register(output).join()) {
      for (int bytes : new int[] {64, 1 << 10, 4 << 10, 16 << 10}) {
        int count = bytes / DataType.FLOAT16.size();
        assertThat(
                collectives.algorithmFor(
                    CollectiveCall.allReduce(input, output, count, DataType.FLOAT16, ReduceOp.SUM)))
            .as("all-reduce of %d bytes", bytes)
            .matches("(one-shot|two-shots)-(ll8|ll128|sentinel)");
        assertThat(
                collectives.algorithmFor(
                    CollectiveCall.reduceScatter(
                        input, output, count / n, DataType.FLOAT16, ReduceOp.SUM)))
            .as("reduce-scatter of %d bytes", bytes)
            .matches("(one-shot|two-shots)-(ll8|ll128|sentinel)");
      }
      rank.awaitAll();
    }
  }
}
