// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.awaitility.Awaitility.await;

import io.fluxccl.Aborted;
import io.fluxccl.DataType;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.ReduceOp;
import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.device.host.HostDevice;
import io.fluxccl.testing.FakeCuda;
import io.fluxccl.testkit.LocalRanks;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Collectives on the fake driver, on which their kernels do nothing. */
@FakeCuda
class CollectivesFakeCudaTest {
  private static final Duration LONG = Duration.ofSeconds(120);

  @ParameterizedTest
  @CsvSource({"1,2", "1,3", "2,1", "2,2"})
  void shouldSetUpRunAndTearDown(int hosts, int ranksPerHost) {
    try (LocalRanks ranks = LocalRanks.ofHostsOnGpus(hosts, ranksPerHost)) {
      ranks.run(
          LONG,
          rank -> {
            try (DeviceBuffer buffer = rank.device().allocate(3 << 20)) {
              for (int round = 0; round < 3; round++) {
                try (Collectives collectives = Collectives.create(rank.communicator()).join()) {
                  for (int count : new int[] {1, 4096, 200_000, 3 << 18}) {
                    collectives
                        .allReduce(buffer, buffer, count, DataType.FLOAT32, ReduceOp.AVG)
                        .block(LONG);
                  }
                }
              }
              rank.awaitAll();
            }
            assertThat(rank.communicator().failure()).isNull();
          });
    }
  }

  @Test
  void shouldFreeAllMemoryWhenClosed() {
    long free = 0;
    for (int round = 0; round < 12; round++) {
      try (LocalRanks ranks = LocalRanks.ofHostsOnGpus(2, 1)) {
        ranks.run(
            LONG,
            rank -> {
              try (DeviceBuffer buffer = rank.device().allocate(5 << 20);
                  Collectives collectives = Collectives.create(rank.communicator()).join()) {
                collectives.allReduce(buffer, DataType.INT32, ReduceOp.MAX).block(LONG);
              }
            });
      }
      if (round == 0) {
        free = FakeMemory.settled();
      }
    }
    long before = free;
    await().untilAsserted(() -> assertThat(FakeMemory.free()).isGreaterThanOrEqualTo(before));
  }

  @Test
  void shouldKeepABufferAllocatedUntilTheCapturedPipelineIsClosed() {
    long size = 4 << 20;
    try (LocalRanks ranks = LocalRanks.onGpus(2)) {
      ranks.run(
          LONG,
          rank -> {
            try (Collectives collectives = Collectives.create(rank.communicator()).join()) {
              collectives.barrier().block(LONG);
              DeviceBuffer buffer = rank.device().allocate(size);
              CapturedPipeline captured =
                  collectives.pipeline().allReduce(buffer, DataType.INT32, ReduceOp.MAX).capture();
              captured.run().block(LONG);
              rank.awaitAll();
              if (rank.rank() == 0) {
                long captive = FakeMemory.settled();
                buffer.close();
                assertThat(FakeMemory.settled()).isEqualTo(captive);
                captured.run().block(LONG);
                captured.close();
                await()
                    .untilAsserted(
                        () -> assertThat(FakeMemory.free()).isGreaterThanOrEqualTo(captive + size));
              } else {
                captured.run().block(LONG);
                captured.close();
                buffer.close();
              }
              rank.awaitAll();
            }
          });
    }
  }

  @Test
  void shouldRefuseRanksOnDevicesOfDifferentKinds() {
    try (LocalRanks ranks = LocalRanks.of(2, CollectivesFakeCudaTest::hostOrGpu)) {
      ranks.run(
          rank -> {
            CompletableFuture<Collectives> opening = Collectives.create(rank.communicator());
            assertThatThrownBy(() -> opening.get(60, TimeUnit.SECONDS))
                .cause()
                .isInstanceOf(InvalidUsage.class)
                .hasMessageContaining("FLUXCCL_DEVICE");
          });
    }
  }

  private static Device hostOrGpu(int rank) {
    return rank == 0 ? HostDevice.create() : CudaDevice.open(0);
  }

  @Test
  void shouldRefuseASliceThatIsNotAligned() {
    try (LocalRanks ranks = LocalRanks.onGpus(2)) {
      ranks.run(
          rank -> {
            try (DeviceBuffer buffer = rank.device().allocate(1024);
                Collectives collectives = Collectives.create(rank.communicator()).join()) {
              DeviceBuffer slice = buffer.slice(4, 512);
              collectives.allReduce(slice, slice, 10, DataType.FLOAT32, ReduceOp.SUM).block(LONG);
              assertThatThrownBy(
                      () ->
                          collectives
                              .allReduce(slice, slice, 10, DataType.FLOAT64, ReduceOp.SUM)
                              .block(LONG))
                  .isInstanceOf(InvalidUsage.class)
                  .hasMessageContaining("multiple");
            }
          });
    }
  }

  @Test
  void shouldEndEveryRanksRunsWhenOneCloses() {
    try (LocalRanks ranks = LocalRanks.onGpus(3)) {
      ranks.run(
          rank -> {
            try (DeviceBuffer buffer = rank.device().allocate(1 << 20)) {
              Collectives collectives = Collectives.create(rank.communicator()).join();
              rank.awaitAll();
              if (rank.rank() == 2) {
                rank.communicator().abort(new Aborted(2, "enough"));
              }
              rank.communicator().failed().get(60, TimeUnit.SECONDS);
              assertThatThrownBy(
                      () -> collectives.allReduce(buffer, DataType.INT8, ReduceOp.SUM).block(LONG))
                  .isInstanceOf(FluxCclException.class)
                  .hasMessageContaining("enough");
            }
          });
    }
  }
}
