// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import static io.fluxccl.DataType.FLOAT32;
import static io.fluxccl.ReduceOp.SUM;
import static io.fluxccl.testing.Outcomes.fails;
import static org.assertj.core.api.Assertions.assertThat;
import static org.awaitility.Awaitility.await;

import io.fluxccl.DataType;
import io.fluxccl.InvalidUsage;
import io.fluxccl.ReduceOp;
import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.device.host.HostDevice;
import io.fluxccl.testing.FakeCuda;
import io.fluxccl.testing.OnRanks;
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.testkit.LocalRanks;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.Test;

/** Collectives on the fake driver, on which their kernels do nothing. */
@FakeCuda
@OnRanks(seconds = 120)
class CollectivesFakeCudaTest {
  private static final Duration LONG = Duration.ofSeconds(120);

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
  void shouldRefuseRanksOnDevicesOfDifferentKinds() {
    try (LocalRanks ranks = LocalRanks.of(2, CollectivesFakeCudaTest::hostOrGpu)) {
      ranks.run(
          rank -> {
            CompletableFuture<Collectives> opening = Collectives.create(rank.communicator());
            fails(opening, InvalidUsage.class, "FLUXCCL_DEVICE");
          });
    }
  }

  private static Device hostOrGpu(int rank) {
    return rank == 0 ? HostDevice.create() : CudaDevice.open(0);
  }

  @Test
  void shouldRefuseASliceThatIsNotAligned(LocalRank rank, Collectives collectives) {
    DeviceBuffer buffer = rank.device().allocate(1024);
    DeviceBuffer slice = buffer.slice(4, 512);
    collectives.allReduce(slice, slice, 10, FLOAT32, SUM).block(LONG);
    fails(
        collectives.allReduce(slice, slice, 10, DataType.FLOAT64, SUM),
        InvalidUsage.class,
        "multiple");
  }
}
