// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.host;

import static io.fluxccl.testing.OnRanks.Runner.lane;
import static io.fluxccl.testing.Outcomes.failsJob;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.DataType;
import io.fluxccl.InvalidUsage;
import io.fluxccl.collective.Collective;
import io.fluxccl.collective.CollectiveCall;
import io.fluxccl.collective.Collectives;
import io.fluxccl.collective.CollectivesOptions;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.host.HostMemory;
import io.fluxccl.testing.Bytes;
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.testkit.LocalRanks;
import java.time.Duration;
import java.util.Arrays;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.function.IntFunction;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** A rank sends a different number of bytes than its peer expects. */
class MismatchedSizesTest {
  private static final Duration LONG = Duration.ofSeconds(120);
  private static final DataType TYPE = DataType.INT8;
  private static final int HALF = 1 << 21;
  private static final byte UNTOUCHED = 0x5a;
  private static final int NONE = CollectiveCall.NO_PEER;

  /** The peers' knowledge of a rank's memory. */
  enum Known {
    NOTHING,
    REGISTERED,
    USED_BEFORE
  }

  private static Collectives create(LocalRank rank, String algorithm, Collective which) {
    return lane(
        rank,
        CollectivesOptions.DEFAULT
            .withThreads(2)
            .withTimeout(LONG)
            .withSetupTimeout(LONG)
            .withAlgorithm(which, algorithm));
  }

  /** A call of a rank; input and output are large enough for all calls. */
  private interface Calls {
    CollectiveCall of(int rank, DeviceBuffer input, DeviceBuffer output);
  }

  /** Expects that all ranks fail with these messages and that no byte after the output changes. */
  private static void shouldEnd(
      String algorithm,
      Known known,
      Calls calls,
      IntFunction<Integer> expected,
      String... messages) {
    try (LocalRanks ranks = LocalRanks.of(2)) {
      ranks.run(
          LONG,
          rank -> {
            int me = rank.rank();
            DeviceBuffer memory = rank.device().allocate(2L * HALF);
            DeviceBuffer input = memory.slice(0, HALF);
            DeviceBuffer output = memory.slice(HALF, HALF);
            CollectiveCall call = calls.of(me, input, output);
            Collectives collectives = create(rank, algorithm, call.collective());
            if (known == Known.REGISTERED) {
              collectives.register(memory).join();
            } else if (known == Known.USED_BEFORE) {
              for (int i = 0; i < 2; i++) {
                collectives
                    .sendReceive(input, HALF, 1 - me, output, HALF, 1 - me, TYPE)
                    .block(LONG);
              }
            }
            HostMemory.fill(memory.address(), memory.size(), UNTOUCHED);
            HostMemory.fill(input.address(), input.size(), (byte) 1);
            rank.awaitAll();
            CompletableFuture<Void> done = collectives.run(call).toFuture();
            failsJob(rank, InvalidUsage.class, call.collective().label());
            failsJob(rank, InvalidUsage.class, messages);
            // A rank that only sends may complete before the receiver refuses the message.
            Optional<Throwable> mine =
                done.handle((nothing, failure) -> Optional.ofNullable(failure)).get();
            mine.ifPresent(failure -> assertThat(failure).isInstanceOf(InvalidUsage.class));
            assertThat(collectives.barrier().toFuture()).failsWithin(LONG);
            // No kernel of any rank runs any more.
            collectives.stream().completion().handle((nothing, failure) -> null).get();
            rank.awaitAll();
            byte[] untouched = new byte[HALF - expected.apply(me)];
            Arrays.fill(untouched, UNTOUCHED);
            byte[] behind = Bytes.of(output, expected.apply(me), untouched.length);
            assertThat(Arrays.mismatch(behind, untouched))
                .as("the first byte behind the output that was written")
                .isEqualTo(-1);
          });
    }
  }

  @ParameterizedTest
  @CsvSource({
    "8000, 100",
    "100, 8000",
    "9000, 100",
    "100, 9000",
    "100000, 9000",
    "9000, 100000",
    "200000, 100000", // two threads send, one receives
    "100000, 200000",
    "2000000, 1000000"
  })
  void shouldFailAllRanksIfASendHasAnUnexpectedSize(int sent, int expected) {
    for (Known known : Known.values()) {
      for (String way : new String[] {"host-direct", "host-staged", "host-one-shot"}) {
        shouldEnd(
            way,
            known,
            (rank, input, output) ->
                rank == 0
                    ? CollectiveCall.sendReceive(input, sent, 1, null, 0, NONE, TYPE)
                    : CollectiveCall.sendReceive(null, 0, NONE, output, expected, 0, TYPE),
            rank -> rank == 0 ? 0 : expected,
            "rank 0 calls send-receive(count=" + sent + ", INT8)",
            "rank 1 calls send-receive(count=" + expected + ", INT8)");
      }
    }
  }

  /** If the sizes of one direction differ, neither direction may be transferred. */
  @ParameterizedTest
  @CsvSource({
    "10000, 10000, 200, 100, REGISTERED",
    "10000, 10000, 100, 200, REGISTERED",
    "10000, 10000, 300000, 100, REGISTERED",
    "10000, 10000, 300000, 100, USED_BEFORE",
    "100, 100, 10000, 200, REGISTERED",
    "100, 100, 10000, 200, NOTHING",
    "100, 100, 200, 10000, REGISTERED",
    "100, 100, 200, 10000, NOTHING",
  })
  void shouldFailAllRanksIfOneDirectionOfAnExchangeDiffers(
      int there, int expectedThere, int back, int expectedBack, Known known) {
    Calls calls =
        (rank, input, output) ->
            rank == 0
                ? CollectiveCall.allToAllv(
                    input, new long[] {0, there}, output, new long[] {0, expectedBack}, TYPE)
                : CollectiveCall.allToAllv(
                    input, new long[] {back, 0}, output, new long[] {expectedThere, 0}, TYPE);
    shouldEnd(
        "host-direct",
        known,
        calls,
        rank -> rank == 0 ? expectedBack : expectedThere,
        "all ranks must call the same operations");
  }

  @Test
  void shouldFailAllRanksIfBroadcastCountsDiffer() {
    shouldEnd(
        "host-direct",
        Known.NOTHING,
        (rank, input, output) ->
            CollectiveCall.broadcast(input, output, rank == 0 ? 5000 : 500, TYPE, 0),
        rank -> rank == 0 ? 5000 : 500,
        "rank 0 calls broadcast(count=5000, INT8, root=0)",
        "rank 1 calls broadcast(count=500, INT8, root=0)");
  }
}
