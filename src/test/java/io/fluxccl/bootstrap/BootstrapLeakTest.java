// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import static io.fluxccl.bootstrap.BootstrapContract.await;
import static io.fluxccl.bootstrap.BootstrapContract.onAll;
import static io.fluxccl.bootstrap.BootstrapContract.soon;

import io.fluxccl.testing.Ports;
import io.fluxccl.testing.Rounds;
import io.fluxccl.testkit.ResourceLeaks;
import java.time.Duration;
import java.util.List;
import org.junit.jupiter.api.Test;

class BootstrapLeakTest {
  private static final Duration LONG = Duration.ofSeconds(60);

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
    round(0);
    ResourceLeaks leaks = ResourceLeaks.snapshot();
    for (int i = 0; i < Rounds.of(20, 100); i++) {
      round(i);
    }
    leaks.assertNone(LONG);
  }

  @Test
  void shouldLeaveNothingWhenInitializeFails() {
    round(0);
    ResourceLeaks leaks = ResourceLeaks.snapshot();
    BootstrapOptions options = BootstrapOptions.builder().timeout(Duration.ofMillis(200)).build();
    List<TcpBootstrap> late =
        List.of(TcpBootstrap.create(0, 3, options), TcpBootstrap.create(1, 3, options));
    String address = "127.0.0.1:" + Ports.reserved();
    await(onAll(late, each -> each.initialize(address).exceptionally(failure -> null)));
    await(onAll(late, TcpBootstrap::closeAsync));
    leaks.assertNone(LONG);
  }
}
