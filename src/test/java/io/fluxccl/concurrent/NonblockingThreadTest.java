// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.concurrent;

import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.DeviceFailure;
import org.junit.jupiter.api.Test;

class NonblockingThreadTest {
  @Test
  void shouldNameTheLimitToRaiseIfAThreadCannotStart() {
    NonblockingThread thread = new NonblockingThread(() -> {}, "fluxccl-too-large", 1L << 60);
    assertThatThrownBy(thread::start)
        .isInstanceOf(DeviceFailure.class)
        .hasMessageContaining("fluxccl-too-large")
        .hasMessageContaining("ulimit -u")
        .hasCauseInstanceOf(OutOfMemoryError.class);
  }
}
