package io.fluxccl.bootstrap;

import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.InvalidUsage;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.Test;

class LocalBootstrapTest extends BootstrapContract {
  @Override
  List<? extends Bootstrap> makeGroup(int nRanks) {
    return LocalBootstrap.group(nRanks, LIMIT);
  }

  @Override
  CompletableFuture<Void> kill(Bootstrap bootstrap) {
    return ((LocalBootstrap) bootstrap).kill();
  }

  @Test
  void shouldRefuseAGroupOfNobody() {
    assertThatThrownBy(() -> LocalBootstrap.group(0)).isInstanceOf(InvalidUsage.class);
  }
}
