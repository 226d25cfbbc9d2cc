// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.docs;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.FluxCclException;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.gpu.TestKernels;
import io.fluxccl.testing.EmulatedGpus;
import io.fluxccl.testing.RequiresGpus;
import io.fluxccl.testkit.LocalRanks;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.concurrent.TimeUnit;
import java.util.function.IntUnaryOperator;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/**
 * The calls of MSCCL++'s pages, as our kernels and our host code write them: set up, run, every
 * result checked. The code of docs/16-coming-from-mscclpp.md.
 */
@EmulatedGpus
@RequiresGpus(2)
@Timeout(120)
class ComingFromMscclppTest {
  private static final int RANKS = EmulatedGpus.HERE ? 4 : 2;
  private static final int THREADS = 256;
  private static final int COUNT = 256;
  private static final int BYTES = COUNT * Integer.BYTES;

  @FunctionalInterface
  private interface Body {
    void run(MscclppRank rank) throws Exception;
  }

  /** Ranks of some hosts, with memory of {@code ints} ints each. */
  private record Job(int hosts, int ints) {
    void run(Body body) {
      try (LocalRanks ranks = LocalRanks.ofHostsOnGpus(hosts, RANKS / hosts)) {
        ranks.ranks().forEach(on -> TestKernels.prepare((CudaDevice) on.device(), "mscclpp"));
        ranks.run(
            on -> {
              try (MscclppRank rank = new MscclppRank(on, (long) ints * Integer.BYTES)) {
                body.run(rank);
                // No rank closes memory or channels that another rank still uses.
                rank.barrier();
              }
            });
      }
    }
  }

  private static void launch(MscclppRank rank, String kernel, int blocks, int threads, Object... a)
      throws Exception {
    rank.on.stream().launch(TestKernels.of("mscclpp", kernel), blocks, threads, KernelArgs.of(a));
    rank.communicator
        .inFlight(rank.on.stream().completion())
        .get(MscclppRank.TIMEOUT.toSeconds(), TimeUnit.SECONDS);
    FluxCclException failure = rank.communicator.failure();
    if (failure != null) {
      throw failure;
    }
  }

  private static int value(int rank, int index) {
    return rank * 1_000_003 + index;
  }

  private static void fill(MscclppRank rank, int count) {
    ByteBuffer ints = ints(count);
    for (int i = 0; i < count; i++) {
      ints.putInt(value(rank.rank, i));
    }
    rank.memory.upload(0, ints.flip());
  }

  private static void check(MscclppRank rank, int from, int count, IntUnaryOperator expected) {
    ByteBuffer ints = ints(count);
    rank.memory.download((long) from * Integer.BYTES, ints);
    for (int i = 0; i < count; i++) {
      assertThat(ints.getInt(i * Integer.BYTES))
          .as("int %d of rank %d", from + i, rank.rank)
          .isEqualTo(expected.applyAsInt(i));
    }
  }

  private static ByteBuffer ints(int count) {
    return ByteBuffer.allocateDirect(count * Integer.BYTES).order(ByteOrder.nativeOrder());
  }

  /** Ranks 0 and 1, 2 and 3. */
  private static int partner(MscclppRank rank) {
    return rank.rank ^ 1;
  }

  @ParameterizedTest
  @CsvSource({
    "mscclppPutSignalFlush, 1, false",
    "mscclppPutSignalFlush, 1, true",
    "mscclppPutByThreads, 256, false",
    "mscclppGet, 256, false"
  })
  void shouldMoveBytesToThePartner(String kernel, int threads, boolean betweenHosts) {
    new Job(betweenHosts ? RANKS : 1, 2 * COUNT)
        .run(
            rank -> {
              fill(rank, COUNT);
              int peer = partner(rank);
              DeviceBuffer channels = threads == 1 ? rank.proxyChannels : rank.smChannels;
              launch(rank, kernel, 1, threads, channels, peer, BYTES);
              check(rank, COUNT, COUNT, i -> value(peer, i));
            });
  }

  @Test
  void shouldExchangePacketsOfEitherTypeAndOfTheDefault() {
    new Job(1, 4 * COUNT)
        .run(
            rank -> {
              int peer = partner(rank);
              int flag = 0;
              for (int type : new int[] {0, 8, 16}) {
                fill(rank, COUNT);
                rank.memory.upload(BYTES, new byte[BYTES]);
                rank.barrier();
                flag++;
                launch(
                    rank, "mscclppPackets", 1, THREADS, rank.smChannels, peer, BYTES, flag, type);
                check(rank, COUNT, COUNT, i -> value(peer, i));
              }
            });
  }

  @Test
  void shouldReadAndWriteValuesOfOneToSixteenBytes() {
    new Job(1, COUNT)
        .run(
            rank -> {
              try (DeviceBuffer wrong = rank.on.device().allocate(Integer.BYTES)) {
                int peer = partner(rank);
                launch(rank, "mscclppReadWrite", 1, 1, rank.smChannels, rank.rank, peer, wrong);
                byte[] count = new byte[Integer.BYTES];
                wrong.download(0, count);
                assertThat(count).as("values that differ").containsOnly(0);
              }
            });
  }

  @Test
  void shouldOverlapATransferWithComputing() {
    new Job(1, 3 * COUNT)
        .run(
            rank -> {
              fill(rank, COUNT);
              int peer = partner(rank);
              launch(rank, "mscclppOverlap", 2, 64, rank.proxyChannels, peer, rank.memory, COUNT);
              check(rank, COUNT, COUNT, i -> value(peer, i));
              check(rank, 2 * COUNT, COUNT, i -> 3 * i);
            });
  }

  @ParameterizedTest
  @ValueSource(booleans = {false, true})
  void shouldRunAnAllToAllByProxiesWithADeviceSyncer(boolean betweenHosts) {
    new Job(betweenHosts ? RANKS : 1, 2 * RANKS * COUNT)
        .run(
            rank -> {
              fill(rank, RANKS * COUNT);
              try (DeviceBuffer deviceSyncer = rank.on.device().allocate(128)) {
                launch(
                    rank,
                    "mscclppAllToAll",
                    rank.nRanks - 1,
                    32,
                    rank.proxyChannels,
                    deviceSyncer,
                    rank.rank,
                    rank.nRanks,
                    (long) COUNT);
              }
              for (int from = 0; from < rank.nRanks; from++) {
                if (from != rank.rank) {
                  int peer = from;
                  int chunk = (rank.nRanks + from) * COUNT;
                  check(rank, chunk, COUNT, i -> value(peer, rank.rank * COUNT + i));
                }
              }
            });
  }

  @ParameterizedTest
  @ValueSource(ints = {1, 2, 4})
  void shouldAddUpByKernels(int upToHosts) {
    int hosts = Math.min(upToHosts, RANKS);
    int chunk = COUNT / RANKS;
    new Job(hosts, 2 * COUNT)
        .run(
            rank -> {
              fill(rank, COUNT);
              rank.barrier();
              launch(
                  rank,
                  "mscclppAllPairs",
                  1,
                  THREADS,
                  rank.proxyChannels,
                  rank.smChannels,
                  rank.memory,
                  chunk,
                  rank.rank,
                  rank.nRanks,
                  RANKS / hosts);
              check(
                  rank,
                  0,
                  COUNT,
                  i -> {
                    int sum = 0;
                    for (int from = 0; from < rank.nRanks; from++) {
                      sum += value(from, i);
                    }
                    return sum;
                  });
            });
  }
}
