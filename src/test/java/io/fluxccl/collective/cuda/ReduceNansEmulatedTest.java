// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.cuda;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.DataType;
import io.fluxccl.ReduceOp;
import io.fluxccl.collective.Collective;
import io.fluxccl.collective.Collectives;
import io.fluxccl.collective.CollectivesOptions;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.testing.EmulatedGpus;
import io.fluxccl.testkit.LocalRanks;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.time.Duration;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** All ranks compute identical bits, also of NaNs. */
@EmulatedGpus
class ReduceNansEmulatedTest {
  private static final Duration LONG = Duration.ofSeconds(300);
  private static final int WORDS = 300;

  /** Words of ones mark empty slots, so they are the only NaNs that are not sent unchanged. */
  @ParameterizedTest(name = "{0} of {1} on {2} ranks")
  @CsvSource({
    "MAX, FLOAT32, 2",
    "MAX, FLOAT32, 3",
    "MIN, FLOAT64, 3",
    "MAX, FLOAT16, 2",
    "MIN, FLOAT16, 2",
    "MIN, BFLOAT16, 3"
  })
  void shouldProduceIdenticalNansOnAllRanks(ReduceOp op, DataType type, int nRanks) {
    Map<Integer, ByteBuffer> results = new ConcurrentHashMap<>();
    CollectivesOptions options =
        CollectivesOptions.DEFAULT.withAlgorithm(Collective.ALL_REDUCE, "one-shot-sentinel");
    int bytes = WORDS * 4;
    try (LocalRanks ranks = LocalRanks.onGpus(nRanks)) {
      ranks.run(
          LONG,
          rank -> {
            try (Collectives collectives = Collectives.create(rank.communicator(), options).join();
                DeviceBuffer buffer = rank.device().allocate(bytes)) {
              ReduceTestData.upload(buffer, 0, ones(rank.rank()), bytes);
              collectives.allReduce(buffer, buffer, bytes / type.size(), type, op).block(LONG);
              results.put(rank.rank(), ReduceTestData.download(buffer, 0, bytes));
            }
          });
    }
    assertThat(results).hasSize(nRanks);
    assertThat(results.values()).allSatisfy(r -> assertThat(r).isEqualTo(results.get(0)));
  }

  /** Returns words of ones, of ones and a number, and of numbers that differ per rank. */
  private static ByteBuffer ones(int rank) {
    int[] words = {-1, 0x3c00ffff, 0xffff3c00, 0x3c003c00};
    ByteBuffer input = ByteBuffer.allocateDirect(WORDS * 4).order(ByteOrder.LITTLE_ENDIAN);
    for (int i = 0; i < WORDS; i++) {
      input.putInt(words[(rank == 0 ? i : rank == 1 ? i / 4 : i / 16) % 4]);
    }
    return input.flip();
  }
}
