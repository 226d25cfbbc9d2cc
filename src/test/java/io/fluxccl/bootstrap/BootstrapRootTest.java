// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import static io.fluxccl.bootstrap.BootstrapContract.await;
import static io.fluxccl.testing.FailureAssertions.failureOf;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.Timeout;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.time.Duration;
import org.junit.jupiter.api.Test;

class BootstrapRootTest {
  private static final InetSocketAddress ANY_PORT =
      new InetSocketAddress(InetAddress.getLoopbackAddress(), 0);

  @Test
  void shouldCloseIfJoinedRanksGiveUpAndNoOthersJoin() {
    byte[] secret = SessionKey.nonce(UniqueId.SECRET_LENGTH);
    BootstrapRoot root =
        new BootstrapRoot(
            SessionKey.of(secret), 0, BootstrapOptions.defaults(), Duration.ofSeconds(2));
    UniqueId id = UniqueId.of(await(root.open(ANY_PORT)), secret);
    BootstrapOptions hasty = BootstrapOptions.builder().timeout(Duration.ofSeconds(1)).build();
    try (TcpBootstrap rank = TcpBootstrap.create(0, 2, hasty)) {
      assertThat(failureOf(rank.initialize(id)))
          .isInstanceOf(Timeout.class)
          .hasMessageContaining("[1] did not register");
    }
    await(root.ended());
  }
}
