// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.DataType;
import io.fluxccl.InvalidUsage;
import io.fluxccl.ReduceOp;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.host.HostMemory;
import io.fluxccl.testing.ParkingStepVerifier;
import io.fluxccl.testkit.LocalRanks;
import java.time.Duration;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;
import reactor.core.publisher.Mono;

@Tag("jdk")
class CollectivesTest {
  private static final Duration LONG = Duration.ofSeconds(120);

  /** Returns the value of an element, a function of rank and index. */
  private static int value(int rank, int i) {
    return rank * 1_000_003 + i * 31;
  }

  private static DeviceBuffer filled(io.fluxccl.device.Device device, int rank, int count) {
    DeviceBuffer buffer = device.allocate(Math.max(1, count) * 4L);
    for (int i = 0; i < count; i++) {
      HostMemory.putInt(buffer.address() + i * 4L, value(rank, i));
    }
    return buffer;
  }

  private static int at(DeviceBuffer buffer, long i) {
    return HostMemory.getInt(buffer.address() + i * 4L);
  }

  private static void verify(Mono<Void> run) {
    ParkingStepVerifier.create(run, LONG).expectComplete().verify(LONG);
  }

  @ParameterizedTest
  @CsvSource({"1,5", "2,1", "2,0", "3,1000", "4,100003"})
  void shouldDoEveryCollective(int nRanks, int count) {
    try (LocalRanks ranks = LocalRanks.of(nRanks)) {
      ranks.run(
          LONG,
          rank -> {
            int me = rank.rank();
            try (Collectives collectives = Collectives.create(rank.communicator()).join()) {
              DeviceBuffer one = filled(rank.device(), me, count);
              DeviceBuffer all = filled(rank.device(), me, count * nRanks);
              DeviceBuffer small = rank.device().allocate(Math.max(1, count) * 4L);
              DeviceBuffer large = rank.device().allocate(Math.max(1, count) * 4L * nRanks);
              verify(collectives.allReduce(one, small, count, DataType.INT32, ReduceOp.SUM));
              for (int i = 0; i < count; i++) {
                int sum = 0;
                for (int r = 0; r < nRanks; r++) {
                  sum += value(r, i);
                }
                assertThat(at(small, i)).isEqualTo(sum);
              }
              verify(collectives.allGather(one, large, count, DataType.INT32));
              for (int i = 0; i < count * nRanks; i++) {
                assertThat(at(large, i)).isEqualTo(value(i / count, i % count));
              }
              verify(collectives.reduceScatter(all, small, count, DataType.INT32, ReduceOp.MAX));
              for (int i = 0; i < count; i++) {
                assertThat(at(small, i)).isEqualTo(value(nRanks - 1, me * count + i));
              }
              verify(collectives.allToAll(all, large, count, DataType.INT32));
              for (int i = 0; i < count * nRanks; i++) {
                assertThat(at(large, i)).isEqualTo(value(i / count, me * count + i % count));
              }
              verify(
                  collectives.sendReceive(
                      one,
                      count,
                      (me + 1) % nRanks,
                      small,
                      count,
                      (me + nRanks - 1) % nRanks,
                      DataType.INT32));
              for (int i = 0; i < count; i++) {
                assertThat(at(small, i)).isEqualTo(value((me + nRanks - 1) % nRanks, i));
              }
              verify(collectives.barrier());
            }
          });
    }
  }

  @ParameterizedTest
  @ValueSource(ints = {1, 2})
  void shouldRefuseToSendItselfOtherThanItReceives(int nRanks) {
    try (LocalRanks ranks = LocalRanks.of(nRanks)) {
      ranks.run(
          LONG,
          rank -> {
            int me = rank.rank();
            try (Collectives collectives = Collectives.create(rank.communicator()).join()) {
              DeviceBuffer in = filled(rank.device(), me, 16);
              DeviceBuffer out = rank.device().allocate(8 * 4);
              shouldRefuse(collectives.send(in, 5, DataType.INT32, me), "itself 20", "expects 0");
              shouldRefuse(collectives.recv(out, 5, DataType.INT32, me), "itself 0", "expects 20");
              shouldRefuse(
                  collectives.sendReceive(in, 16, me, out, 8, me, DataType.INT32),
                  "itself 64",
                  "expects 32");
              shouldRefuse(
                  collectives.pipeline().send(in, 5, DataType.INT32, me).run(), "itself 20");
              verify(collectives.sendReceive(in, 8, me, out, 8, me, DataType.INT32));
              for (int i = 0; i < 8; i++) {
                assertThat(at(out, i)).isEqualTo(value(me, i));
              }
              verify(collectives.barrier());
            }
          });
    }
  }

  @ParameterizedTest
  @ValueSource(ints = {2, 4})
  void shouldRefuseSharesThatAreTogetherTooLarge(int nRanks) {
    try (LocalRanks ranks = LocalRanks.of(nRanks)) {
      ranks.run(
          LONG,
          rank -> {
            try (Collectives collectives = Collectives.create(rank.communicator()).join()) {
              DeviceBuffer in = filled(rank.device(), rank.rank(), 16);
              DeviceBuffer out = rank.device().allocate(64);
              shouldRefuse(
                  collectives.allToAll(in, out, 1L << 62, DataType.INT8),
                  "all-to-all",
                  "give less");
              shouldRefuse(collectives.gather(in, out, 1L << 62, DataType.INT8, 0), "gather");
              verify(collectives.barrier());
            }
          });
    }
  }

  private static void shouldRefuse(Mono<Void> run, String... messages) {
    ParkingStepVerifier.create(run, LONG)
        .expectErrorSatisfies(
            e -> assertThat(e).isInstanceOf(InvalidUsage.class).hasMessageContainingAll(messages))
        .verify(LONG);
  }
}
