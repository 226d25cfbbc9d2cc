// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.DataType;
import io.fluxccl.ReduceOp;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.testing.Rounds;
import io.fluxccl.testkit.LocalRanks;
import io.fluxccl.transport.Transport;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Set;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.awaitility.Awaitility;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Setting up and tearing down, again and again, leaves nothing. */
class CollectivesLeakTest {
  private static final Duration LONG = Duration.ofSeconds(120);

  /** What this process holds that only closing gives back. */
  private record Held(Set<Thread> threads, long descriptors, long mappings, long files) {
    static Held now() throws IOException {
      // Kept for a while by Reactor, Netty, Awaitility, the JDK, and for tasks that may block.
      Set<Thread> threads =
          Thread.getAllStackTraces().keySet().stream()
              .filter(
                  t ->
                      !t.getName()
                          .matches(
                              "(awaitility|globalEvent|boundedElastic|fluxccl-blocking|parallel|CompletableFuture|Fork).*"))
              .collect(Collectors.toSet());
      String mine = "fluxccl-" + ProcessHandle.current().pid() + "-";
      return new Held(
          threads,
          count(Path.of("/proc/self/fd"), ""),
          Files.readString(Path.of("/proc/self/maps"))
              .lines()
              .filter(line -> line.contains("fluxccl-"))
              .count(),
          count(Path.of("/dev/shm"), mine));
    }

    private static long count(Path folder, String prefix) throws IOException {
      try (Stream<Path> entries = Files.list(folder)) {
        return entries.filter(e -> e.getFileName().toString().startsWith(prefix)).count();
      }
    }
  }

  @ParameterizedTest
  @CsvSource({"SHM,true", "ETHERNET,true", "SHM,false", "ETHERNET,false"})
  void shouldLeaveNothingAfterManyRounds(Transport transport, boolean closed) throws Exception {
    round(transport, closed); // loads classes and native libraries
    Held before = settled();
    int rounds = Rounds.of(20, 100);
    for (int i = 0; i < rounds; i++) {
      round(transport, closed);
    }
    Awaitility.await()
        .atMost(LONG)
        .untilAsserted(
            () -> {
              Held after = Held.now();
              assertThat(before.threads()).containsAll(after.threads());
              assertThat(after.descriptors()).isLessThanOrEqualTo(before.descriptors());
              assertThat(after.mappings()).isLessThanOrEqualTo(before.mappings());
              assertThat(after.files()).isLessThanOrEqualTo(before.files());
            });
  }

  /** What earlier rounds are still closing must not count as held before. */
  private static Held settled() throws IOException {
    Awaitility.await()
        .atMost(LONG)
        .untilAsserted(
            () ->
                assertThat(Held.now().threads())
                    .noneMatch(t -> t.getName().matches("(fluxccl|rank)-.*")));
    return Held.now();
  }

  private static void round(Transport transport, boolean closed) {
    try (LocalRanks ranks = LocalRanks.of(2)) {
      ranks.run(
          LONG,
          rank -> {
            DeviceBuffer buffer = rank.device().allocate(100_000);
            Collectives collectives =
                Collectives.create(
                        rank.communicator(), CollectivesOptions.DEFAULT.withTransport(transport))
                    .join();
            collectives.allReduce(buffer, DataType.INT32, ReduceOp.SUM).block(LONG);
            if (closed) {
              collectives.close();
            }
            buffer.close();
          });
    }
  }
}
