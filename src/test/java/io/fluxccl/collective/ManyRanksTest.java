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
import java.nio.file.Path;
import java.time.Duration;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.atomic.AtomicLong;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** The resources of many ranks on one host, and a reduction among them. */
class ManyRanksTest {
  private static final Duration LONG = Duration.ofSeconds(300);

  /** Each end of a connection has one socket. */
  private static final long SOCKETS_OF_PAIR = 2;

  private static final long SHARED_LIMIT = 1_000_000_000;

  /** With ETHERNET each rank has its own boxes, and a segment for small buffers. */
  private static final long SHARED_LIMIT_OF_SEGMENTS = 1_450_000_000;

  /** With ETHERNET, pages of boxes that no call has used are not resident. */
  private static final long RESIDENT_LIMIT = 100_000_000;

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

  /** Returns the bytes of shared memory that are resident. */
  private static long residentMemory() throws IOException {
    for (String line : Files.readAllLines(Path.of("/proc/self/status"))) {
      if (line.startsWith("RssShmem:")) {
        return Long.parseLong(line.replaceAll("[^0-9]", "")) << 10;
      }
    }
    throw new IOException("/proc/self/status has no RssShmem");
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
      long residentBefore = residentMemory();
      ranks.run(
          LONG,
          rank -> {
            Collectives collectives = lane(rank, options);
            if (rank.rank() == 0) {
              files.set(openFiles() - before);
              assertThat(sharedMemory() - memoryBefore)
                  .isLessThan(transport == Transport.SHM ? SHARED_LIMIT : SHARED_LIMIT_OF_SEGMENTS);
              if (transport == Transport.ETHERNET) {
                assertThat(residentMemory() - residentBefore).isLessThan(RESIDENT_LIMIT);
              }
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

  /** Returns a call of a few bytes for each rank. */
  private static CollectiveCall call(Collective kind, DeviceBuffer buffer) {
    DeviceBuffer one = buffer.slice(0, 8);
    DeviceBuffer of = buffer.slice(8, buffer.size() - 8);
    return switch (kind) {
      case ALL_REDUCE -> CollectiveCall.allReduce(one, one, 2, DataType.INT32, ReduceOp.SUM);
      case ALL_GATHER -> CollectiveCall.allGather(one, of, 2, DataType.INT32);
      case REDUCE_SCATTER -> CollectiveCall.reduceScatter(of, one, 2, DataType.INT32, ReduceOp.SUM);
      case BROADCAST -> CollectiveCall.broadcast(one, one, 2, DataType.INT32, 5);
      default -> CollectiveCall.barrier();
    };
  }

  /** Runs calls one after the other on a lane, and expects the sockets of a tree's edges. */
  private static void expectSocketsOfEdges(int nRanks, List<Collective> kinds) {
    CollectivesOptions options =
        CollectivesOptions.DEFAULT.withTransport(Transport.ETHERNET).withTimeout(LONG);
    long expected = (nRanks - 1) * SOCKETS_OF_PAIR;
    try (LocalRanks ranks = LocalRanks.of(nRanks)) {
      ranks.run(
          LONG,
          rank -> {
            Collectives collectives = lane(rank, options);
            rank.awaitAll();
            Set<String> before = sockets();
            rank.awaitAll();
            try (DeviceBuffer buffer = rank.device().allocate(8L * (nRanks + 1))) {
              for (Collective kind : kinds) {
                collectives.run(call(kind, buffer)).block(LONG);
              }
            }
            rank.awaitAll();
            if (rank.rank() == 0) {
              // A late pair of ranks may have called each other; one of these sockets closes.
              Awaitility.await().atMost(LONG).until(() -> opened(before) == expected);
            }
            rank.awaitAll();
          });
    }
  }

  private static int opened(Set<String> before) throws IOException {
    Set<String> opened = sockets();
    opened.removeAll(before); // an earlier test's may close meanwhile
    return opened.size();
  }

  /** Returns the names of the process's sockets. */
  private static Set<String> sockets() throws IOException {
    Set<String> sockets = new HashSet<>();
    for (File file : new File("/proc/self/fd").listFiles()) {
      try {
        String name = Files.readSymbolicLink(file.toPath()).toString();
        if (name.startsWith("socket")) {
          sockets.add(name);
        }
      } catch (NoSuchFileException e) {
        continue; // closed since it was listed
      }
    }
    return sockets;
  }

  @ParameterizedTest
  @EnumSource(
      value = Collective.class,
      names = {"ALL_REDUCE", "ALL_GATHER", "REDUCE_SCATTER", "BROADCAST", "BARRIER"})
  void shouldConnectOnlyTheEdgesOfATreeOverEthernet(Collective kind) {
    expectSocketsOfEdges(32, List.of(kind));
  }

  @Test
  @Tag("nightly")
  void shouldShareTreeConnectionsBetweenCollectivesOfManyRanks() {
    List<Collective> kinds =
        List.of(
            Collective.ALL_REDUCE,
            Collective.ALL_GATHER,
            Collective.REDUCE_SCATTER,
            Collective.BROADCAST,
            Collective.BARRIER);
    expectSocketsOfEdges(128, kinds);
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
