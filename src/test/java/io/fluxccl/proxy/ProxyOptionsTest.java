// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.proxy;

import static io.fluxccl.testing.FailureAssertions.assertRefused;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.InvalidUsage;
import io.fluxccl.concurrent.IdleBackoff;
import io.fluxccl.device.host.HostDevice;
import io.fluxccl.settings.Settings;
import java.time.Duration;
import java.util.Map;
import java.util.function.UnaryOperator;
import java.util.stream.Stream;
import org.agrona.concurrent.BusySpinIdleStrategy;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

class ProxyOptionsTest {
  private static ProxyOptions.Builder builder(HostDevice device, String idle) {
    return ProxyOptions.builderFor(device, Settings.of(Map.of(ProxyOptions.IDLE_VARIABLE, idle)));
  }

  @Test
  void shouldUseTheIdleStrategyOfTheEnvironment() {
    try (HostDevice device = HostDevice.create()) {
      assertThat(builder(device, "").build().idleStrategy().get()).isInstanceOf(IdleBackoff.class);
      assertThat(builder(device, "spinning").build().idleStrategy().get())
          .isInstanceOf(IdleBackoff.class);
      assertThat(builder(device, "busySpinning").build().idleStrategy().get())
          .isInstanceOf(BusySpinIdleStrategy.class);
      assertThatThrownBy(() -> builder(device, "busy"))
          .isInstanceOf(InvalidUsage.class)
          .hasMessage("FLUXCCL_PROXY_IDLE=busy: give yielding, spinning or busySpinning");
    }
  }

  @ParameterizedTest
  @MethodSource("wrongValues")
  void shouldRefuseAtBuildWhenAValueIsWrong(
      String option, UnaryOperator<ProxyOptions.Builder> change) {
    ProxyOptions.Builder builder = change.apply(ProxyOptions.builder());

    assertRefused(builder::build, "proxy option " + option + "=");
  }

  static Stream<Arguments> wrongValues() {
    return Stream.of(
        wrong("name", b -> b.name(null)),
        wrong("name", b -> b.name("")),
        wrong("batch", b -> b.batch(0)),
        wrong("batch", b -> b.batch(-1)),
        wrong("stopTimeout", b -> b.stopTimeout(null)),
        wrong("stopTimeout", b -> b.stopTimeout(Duration.ofNanos(-1))),
        wrong("threadInit", b -> b.threadInit(null)),
        wrong("idleStrategy", b -> b.idleStrategy(null)),
        wrong("errorHandler", b -> b.errorHandler(null)),
        wrong("duty", b -> b.duty(null)));
  }

  private static Arguments wrong(String option, UnaryOperator<ProxyOptions.Builder> change) {
    return Arguments.of(option, change);
  }
}
