// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.cuda;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
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
import io.fluxccl.testing.TestJvms;
import io.fluxccl.testkit.LocalRanks;
import io.fluxccl.testkit.ProcessRank;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Deque;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.function.Function;
import jcuda.driver.JCudaDriver;
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

  private static long free(CudaDevice gpu) {
    gpu.makeCurrent();
    long[] free = new long[1];
    assertThat(JCudaDriver.cuMemGetInfo(free, new long[1])).isZero();
    return free[0];
  }

  @Test
  void shouldFreeScratchIfItIsReservedAfterClose() {
    onAMesh(SetupLeaksTest::nothing);
    long before = FakeMemory.settled();
    onAMesh(
        peers ->
            ReduceSet.prepare(peers)
                .thenCompose(
                    set -> {
                      set.close();
                      return set.reserve(16 << 20);
                    }));
    await().untilAsserted(() -> assertThat(FakeMemory.free()).isGreaterThanOrEqualTo(before));
  }

  private static CompletableFuture<Void> nothing(PeerConnections peers) {
    return CompletableFuture.completedFuture(null);
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
                    ExchangeSet.prepare(peers).join().close();
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
        long left = free(gpu);
        try {
          set = ExchangeSet.prepare(peers).join();
        } catch (DeviceFailure e) {
          await().untilAsserted(() -> assertThat(free(gpu)).isEqualTo(left));
          all.remove().close();
          await().untilAsserted(() -> assertThat(free(gpu)).isEqualTo(left + GRANULE));
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

  /** A separate process, because it uses up all direct memory. */
  static final class WithoutDirectMemory {
    static final String FREED = "all was freed";

    private WithoutDirectMemory() {}

    public static void main(String[] args) {
      onAMesh(
          peers ->
              ReduceSet.prepare(peers)
                  .thenAcceptAsync(
                      set -> {
                        if (peers.rank() == 0) {
                          shouldFailWithoutLeaks(peers, set);
                        }
                        set.close();
                      },
                      BLOCKING));
      System.out.println(FREED);
    }

    private static void shouldFailWithoutLeaks(PeerConnections peers, AlgorithmSet set) {
      CudaDevice gpu = gpu(peers);
      List<ByteBuffer> taken = new ArrayList<>();
      for (int size : new int[] {1 << 24, 1 << 20}) {
        try {
          while (true) {
            taken.add(ByteBuffer.allocateDirect(size));
          }
        } catch (OutOfMemoryError e) {
          assertThat(e).hasMessageContaining("direct buffer memory");
        }
      }
      long before = free(gpu);
      shouldRunOut(ReduceSet.prepare(peers));
      await().untilAsserted(() -> assertThat(free(gpu)).isEqualTo(before));
      shouldRunOut(set.reserve(16 << 20));
      await().untilAsserted(() -> assertThat(free(gpu)).isEqualTo(before));
      assertThat(taken).isNotEmpty();
    }

    private static void shouldRunOut(CompletableFuture<?> setup) {
      assertThatThrownBy(setup::join).hasRootCauseInstanceOf(OutOfMemoryError.class);
    }
  }

  @Test
  void shouldFreeAllWhenAnErrorEndsASetup() throws Exception {
    try (ProcessRank child = TestJvms.start(WithoutDirectMemory.class)) {
      assertThat(child.readLine()).isEqualTo(WithoutDirectMemory.FREED);
    }
  }
}
