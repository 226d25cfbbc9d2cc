package io.fluxccl.group;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.InvalidUsage;
import io.fluxccl.collective.CollectivesOptions;
import io.fluxccl.transport.Transport;
import java.nio.file.Path;
import java.util.Map;
import org.junit.jupiter.api.Test;

class RankGroupOptionsTest {
  @Test
  void shouldAllowAllNetworksWhereTheEnvironmentSaysNothing() {
    CollectivesOptions options = RankGroupOptions.collectivesFrom(Map.of("FLUXCCL_NETWORK", " "));
    assertThat(options).isEqualTo(CollectivesOptions.DEFAULT);
    assertThat(options.networks()).isEqualTo(CollectivesOptions.NETWORKS);
  }

  @Test
  void shouldTakeNetworksAndTuningFromTheEnvironment() {
    CollectivesOptions options =
        RankGroupOptions.collectivesFrom(
            Map.of("FLUXCCL_NETWORK", "IB0,ETHERNET", "FLUXCCL_TUNING", "/tuning"));
    assertThat(options.networks().asSet()).containsExactly(Transport.IB0, Transport.ETHERNET);
    assertThat(options.tuning()).hasValue(Path.of("/tuning"));
  }

  @Test
  void shouldNameTheVariableThatMakesNoSense() {
    for (String wrong : new String[] {"TCP", "SHM"}) {
      assertThatThrownBy(() -> RankGroupOptions.collectivesFrom(Map.of("FLUXCCL_NETWORK", wrong)))
          .isInstanceOf(InvalidUsage.class)
          .hasMessageContaining("FLUXCCL_NETWORK=" + wrong);
    }
  }
}
