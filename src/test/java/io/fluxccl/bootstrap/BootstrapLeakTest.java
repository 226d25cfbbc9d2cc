// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import static io.fluxccl.bootstrap.BootstrapContract.await;
import static io.fluxccl.bootstrap.BootstrapContract.onAll;
import static io.fluxccl.bootstrap.BootstrapContract.soon;
import static org.assertj.core.api.Assertions.assertThat;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.fluxccl.testing.Rounds;
import java.io.File;
import java.time.Duration;
import java.util.List;
import java.util.Set;
import java.util.stream.Collectors;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.Test;

class BootstrapLeakTest {
  private static final File DESCRIPTORS = new File("/proc/self/fd");

  private static int openDescriptors() {
    return DESCRIPTORS.list().length;
  }

  private static Set<String> threads() {
    return Thread.getAllStackTraces().keySet().stream()
        .map(Thread::getName)
        .filter(name -> !name.startsWith("awaitility"))
        .collect(Collectors.toSet());
  }

  private static void round(int number) {
    BootstrapOptions options = BootstrapOptions.defaults();
    List<TcpBootstrap> ranks =
        number % 2 == 0 ? TcpRanks.byAddress(3, options) : TcpRanks.byId(3, options);
    await(onAll(ranks, each -> each.send((each.rank() + 2) % 3, 1, new byte[100], soon())));
    await(onAll(ranks, each -> each.barrier(soon())));
    if (number % 5 == 4) {
      await(TcpRanks.kill(ranks.get(1)));
    }
    await(onAll(ranks, TcpBootstrap::closeAsync));
    List<LocalBootstrap> local = LocalBootstrap.group(3);
    await(onAll(local, each -> each.barrier(soon())));
    await(onAll(local, LocalBootstrap::closeAsync));
  }

  @Test
  void shouldLeaveNoThreadAndNoDescriptorAfterManyRounds() {
    assumeTrue(DESCRIPTORS.isDirectory(), "only where /proc is");
    round(0);
    awaitQuiet();
    Set<String> threadsBefore = threads();
    int before = openDescriptors();
    int rounds = Rounds.of(20, 100);
    for (int i = 0; i < rounds; i++) {
      round(i);
    }
    awaitQuiet();
    Awaitility.await()
        .atMost(Duration.ofSeconds(60))
        .untilAsserted(
            () -> {
              assertThat(openDescriptors()).isLessThanOrEqualTo(before);
              assertThat(threads()).isSubsetOf(threadsBefore);
            });
  }

  @Test
  void shouldLeaveNothingWhenInitializeFails() {
    assumeTrue(DESCRIPTORS.isDirectory(), "only where /proc is");
    round(0);
    awaitQuiet();
    int before = openDescriptors();
    BootstrapOptions options = BootstrapOptions.builder().timeout(Duration.ofMillis(200)).build();
    TcpBootstrap root = TcpBootstrap.create(0, 3, options);
    TcpBootstrap rank = TcpBootstrap.create(1, 3, options);
    String address = "127.0.0.1:" + TcpRanks.freePort();
    await(onAll(List.of(root, rank), each -> each.initialize(address).exceptionally(late -> null)));
    await(onAll(List.of(root, rank), TcpBootstrap::closeAsync));
    awaitQuiet();
    Awaitility.await()
        .untilAsserted(() -> assertThat(openDescriptors()).isLessThanOrEqualTo(before));
  }

  // Netty's own helper thread ends a second after it was last needed.
  private static void awaitQuiet() {
    Awaitility.await()
        .atMost(Duration.ofSeconds(60))
        .until(
            () ->
                threads().stream()
                    .noneMatch(
                        name ->
                            name.startsWith("fluxccl-bootstrap")
                                || name.startsWith("globalEventExecutor")));
  }
}
