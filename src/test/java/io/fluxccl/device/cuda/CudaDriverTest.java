// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import static org.assertj.core.api.Assertions.assertThat;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.NullSource;
import org.junit.jupiter.params.provider.ValueSource;

class CudaDriverTest {
  @Test
  void shouldWarnOfFewHardwareQueues() {
    assertThat(CudaDriver.warningAbout("1")).get().asString().contains("CONNECTIONS=1", "set 32");
    assertThat(CudaDriver.warningAbout("7")).isPresent();
  }

  @ParameterizedTest
  @NullSource
  @ValueSource(strings = {"", "8", "12", "32", "0", "x"})
  void shouldNotWarnIfHardwareQueuesAreEnoughOrUnset(String connections) {
    assertThat(CudaDriver.warningAbout(connections)).isEmpty();
  }
}
