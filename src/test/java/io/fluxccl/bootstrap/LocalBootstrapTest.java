// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.InvalidUsage;
import io.fluxccl.RemoteFailure;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

@Tag("jdk")
class LocalBootstrapTest extends BootstrapContract {
  @Override
  List<? extends Bootstrap> makeGroup(int nRanks) {
    return LocalBootstrap.group("", nRanks, LIMIT);
  }

  @Override
  CompletableFuture<Void> kill(Bootstrap bootstrap) {
    LocalBootstrap rank = (LocalBootstrap) bootstrap;
    return CompletableFuture.runAsync(
        () -> {
          rank.gone = true;
          for (LocalBootstrap each : rank.group) {
            if (each != rank && !each.gone) {
              each.fail(RemoteFailure.of(rank.rank(), "rank %s died", rank.rank()));
            }
          }
        },
        rank.loop);
  }

  @Test
  void shouldRefuseAnEmptyGroup() {
    assertThatThrownBy(() -> LocalBootstrap.group(0)).isInstanceOf(InvalidUsage.class);
  }
}
