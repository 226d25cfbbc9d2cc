// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.vendor;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.InvalidUsage;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(60)
class PluginCallLockTest {
  private final PluginCallLock gate = new PluginCallLock("a comm", Duration.ofSeconds(60));

  @Test
  void shouldRefuseASecondThread() {
    gate.enter();
    assertThatThrownBy(gate::enter)
        .isInstanceOf(InvalidUsage.class)
        .hasMessageContaining("a comm is used by two threads at once");
    gate.exit();
    gate.enter();
    gate.exit();
  }

  @Test
  void shouldCloseOnceAndOnlyAfterRunningCalls() throws Exception {
    gate.enter();
    CompletableFuture<Boolean> closing = CompletableFuture.supplyAsync(() -> gate.close(() -> {}));
    assertThat(closing.isDone()).isFalse();
    gate.exit();
    assertThat(closing.get(60, TimeUnit.SECONDS)).isTrue();
    assertThat(gate.close(() -> {})).isFalse();
    assertThatThrownBy(gate::enter)
        .isInstanceOf(InvalidUsage.class)
        .hasMessageContaining("a comm is closed");
  }

  @Test
  void shouldStayOpenIfCloseTimesOutOnARunningCall() {
    PluginCallLock impatient = new PluginCallLock("a comm", Duration.ofMillis(50));
    impatient.enter();
    assertThatThrownBy(() -> impatient.close(() -> {}))
        .isInstanceOf(io.fluxccl.Timeout.class)
        .hasMessageContaining("close of a comm")
        .hasMessageContaining("50 ms");
    assertThat(impatient.isClosed()).isFalse();
    impatient.exit();
    assertThat(impatient.close(() -> {})).isTrue();
  }
}
