// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import static io.fluxccl.testing.OnRanks.Runner.lane;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.DataType;
import io.fluxccl.ReduceOp;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.host.HostMemory;
import io.fluxccl.testkit.LocalRanks;
import io.fluxccl.transport.Transport;
import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.time.Duration;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

/** The resources of many ranks on one host, and a reduction among them. */
class ManyRanksTest {
  private static final Duration LONG = Duration.ofSeconds(300);
  private static final long SHARED_LIMIT = 1_000_000_000;

  /** With ETHERNET each rank has its own segment for small buffers. */
  private static final long SHARED_LIMIT_OF_SEGMENTS = 1_300_000_000;

  private static long openFiles() {
    return new File("/proc/self/fd").list().length;
  }

  /** Returns the bytes of the segments that this process owns. */
  private static long sharedMemory() throws IOException {
    long bytes = 0;
    for (File file : new File("/proc/self/fd").listFiles()) {
      try {
        if (Files.readSymbolicLink(file.toPath()).toString().contains("fluxccl-")) {
          bytes += file.length();
        }
      } catch (NoSuchFileException e) {
        continue; // closed since it was listed
      }
    }
    return bytes;
  }

  /** Opens lanes, checks the memory that they use, and runs an all-reduce. */
  private static void reduce(
      int nRanks, Transport transport, String algorithm, long perRank, long bytes)
      throws IOException {
    CollectivesOptions options =
        CollectivesOptions.DEFAULT
            .withTransport(transport)
            .withTimeout(LONG)
            .withAlgorithm(Collective.ALL_REDUCE, algorithm);
    AtomicLong files = new AtomicLong();
    try (LocalRanks ranks = LocalRanks.of(nRanks)) {
      long before = openFiles();
      long memoryBefore = sharedMemory();
      ranks.run(
          LONG,
          rank -> {
            Collectives collectives = lane(rank, options);
            if (rank.rank() == 0) {
              files.set(openFiles() - before);
              assertThat(sharedMemory() - memoryBefore)
                  .isLessThan(transport == Transport.SHM ? SHARED_LIMIT : SHARED_LIMIT_OF_SEGMENTS);
            }
            rank.awaitAll();
            try (DeviceBuffer buffer = rank.device().allocate(bytes)) {
              HostMemory.putInt(buffer.address(), 1);
              HostMemory.putInt(buffer.address() + bytes - 4, rank.rank());
              collectives.allReduce(buffer, DataType.INT32, ReduceOp.SUM).block(LONG);
              assertThat(HostMemory.getInt(buffer.address())).isEqualTo(nRanks);
              assertThat(HostMemory.getInt(buffer.address() + bytes - 4))
                  .isEqualTo(nRanks * (nRanks - 1) / 2);
            }
            rank.awaitAll();
          });
    }
    assertThat(files.get()).as("open files of all ranks").isLessThan(nRanks * perRank);
  }

  @Test
  void shouldReduceAmongThirtyTwoRanksOverSharedMemory() throws IOException {
    reduce(32, Transport.SHM, "host-one-shot", 8, 4096);
    reduce(32, Transport.SHM, "host-staged", 8, 1 << 20);
  }

  @Test
  void shouldConnectOnlyNeighboursOverEthernetWhenARingIsChosen() throws IOException {
    reduce(32, Transport.ETHERNET, "ring", 20, 1 << 20);
  }

  @Test
  void shouldConnectAllPairsOverEthernetWhenACallNeedsThem() throws IOException {
    reduce(16, Transport.ETHERNET, "all-pairs", 20, 4096);
  }

  @Test
  @Tag("nightly")
  void shouldReduceAmongManyRanks() throws IOException {
    reduce(128, Transport.SHM, "host-staged", 8, 1 << 20);
    reduce(256, Transport.SHM, "host-one-shot", 8, 4096);
    reduce(256, Transport.SHM, "host-staged", 8, 1 << 20);
    reduce(128, Transport.ETHERNET, "ring", 20, 1 << 20);
  }
}
