// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.cuda;

import static org.assertj.core.api.Assertions.assertThat;
import static org.awaitility.Awaitility.await;

import io.fluxccl.DeviceFailure;
import io.fluxccl.collective.AlgorithmSet;
import io.fluxccl.collective.Collectives;
import io.fluxccl.collective.CollectivesOptions;
import io.fluxccl.collective.FakeMemory;
import io.fluxccl.collective.PeerConnections;
import io.fluxccl.concurrent.BlockingTasks;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.testing.FakeCuda;
import io.fluxccl.testing.FakeFamily;
import io.fluxccl.testkit.LocalRanks;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.Collection;
import java.util.Deque;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.Executor;
import java.util.function.Function;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Algorithm sets free their memory, also if set-up fails or completes after close. */
@FakeCuda
@Timeout(120)
class SetupLeaksTest {
  private static final Duration LONG = Duration.ofSeconds(100);
  private static final Executor BLOCKING = BlockingTasks.EXECUTOR;
  private static final long GRANULE = 2 << 20;

  /** Runs the test in the set-up of a family of two ranks, each on its own GPU. */
  private static void onAMesh(Function<PeerConnections, CompletableFuture<Void>> test) {
    FakeFamily probe =
        new FakeFamily("a-probe") {
          @Override
          public CompletableFuture<AlgorithmSet> prepare(PeerConnections peers) {
            return test.apply(peers).thenApply(done -> this);
          }
        };
    CollectivesOptions options =
        CollectivesOptions.DEFAULT.withSetupTimeout(LONG).withFamily(probe);
    try (LocalRanks ranks = LocalRanks.onGpus(2)) {
      ranks.run(LONG, rank -> Collectives.create(rank.communicator(), options).join().close());
    }
  }

  private static CudaDevice gpu(PeerConnections peers) {
    return (CudaDevice) peers.communicator().device();
  }

  @Test
  void shouldFreeScratchIfItIsReservedAfterClose() {
    onAMesh(peers -> CompletableFuture.completedFuture(null));
    long before = FakeMemory.settled();
    onAMesh(
        peers ->
            MappedGpuSet.prepare(peers)
                .thenCompose(
                    set -> {
                      set.close();
                      return set.reserve(16 << 20);
                    }));
    await().untilAsserted(() -> assertThat(FakeMemory.free()).isGreaterThanOrEqualTo(before));
  }

  @Test
  void shouldFreeAllWhenTheGpuHasTooLittleMemory() {
    onAMesh(
        peers ->
            CompletableFuture.runAsync(
                () -> {
                  if (peers.rank() == 0) {
                    shouldFailWithoutLeaks(peers);
                  } else {
                    MappedGpuSet.prepare(peers).join().close();
                  }
                },
                BLOCKING));
  }

  /** Sets up with no free memory at first, then with more until it succeeds. */
  private static void shouldFailWithoutLeaks(PeerConnections peers) {
    CudaDevice gpu = gpu(peers);
    Deque<DeviceBuffer> all = new ArrayDeque<>();
    Deque<DeviceBuffer> small = new ArrayDeque<>();
    try {
      takeAll(gpu, GRANULE, all);
      // Fill the rest of the block that small buffers share.
      for (long size = 64 << 10; size >= 128; size /= 2) {
        takeAll(gpu, size, small);
      }
      AlgorithmSet set = null;
      while (set == null) {
        long left = FakeMemory.free(gpu);
        try {
          set = MappedGpuSet.prepare(peers).join();
        } catch (CompletionException e) {
          assertThat(e).hasCauseInstanceOf(DeviceFailure.class);
          await().untilAsserted(() -> assertThat(FakeMemory.free(gpu)).isEqualTo(left));
          all.remove().close();
          await().untilAsserted(() -> assertThat(FakeMemory.free(gpu)).isEqualTo(left + GRANULE));
        }
      }
      set.close();
    } finally {
      all.forEach(DeviceBuffer::close);
      small.forEach(DeviceBuffer::close);
    }
  }

  private static void takeAll(CudaDevice gpu, long size, Collection<DeviceBuffer> to) {
    try {
      while (true) {
        to.add(gpu.allocate(size));
      }
    } catch (DeviceFailure e) {
      assertThat(e).hasMessageContaining("OUT_OF_MEMORY");
    }
  }
}
