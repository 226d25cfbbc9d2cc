// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.group;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.InvalidUsage;
import io.fluxccl.settings.Settings;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

class DeviceChoiceTest {
  private static final String WHY = "there is no driver";

  @ParameterizedTest
  @ValueSource(strings = {"auto", "host", "cuda", "cuda:0", "cuda:17"})
  void shouldParseItsStringForm(String text) {
    assertThat(DeviceChoice.parse(text)).hasToString(text).isEqualTo(DeviceChoice.parse(text));
  }

  @ParameterizedTest
  @ValueSource(strings = {"", "gpu", "cuda:", "cuda:-1", "cuda:x", "cuda:99999", "CUDA"})
  void shouldRefuseInvalidDeviceNames(String text) {
    assertThatThrownBy(() -> DeviceChoice.parse(text))
        .isInstanceOf(InvalidUsage.class)
        .hasMessageContaining("device=" + text)
        .hasMessageContaining("cuda:N");
  }

  @Test
  void shouldPreferThePropertyToTheVariableAndBothToAuto() {
    Map<String, String> environment = Map.of("FLUXCCL_DEVICE", " cuda ");
    assertThat(DeviceChoice.from(new Settings(environment, name -> "host")))
        .isEqualTo(DeviceChoice.HOST);
    assertThat(DeviceChoice.from(Settings.of(environment))).isEqualTo(DeviceChoice.CUDA);
    assertThat(DeviceChoice.from(Settings.of(Map.of()))).isEqualTo(DeviceChoice.AUTO);
  }

  @ParameterizedTest
  @CsvSource({
    "auto,0,8,0",
    "auto,9,8,1",
    "auto,3,0,-1",
    "host,3,8,-1",
    "cuda,5,4,1",
    "cuda:2,0,4,2",
    "cuda:2,3,4,2"
  })
  void shouldAssignGpusRoundRobin(String choice, int localRank, int gpus, int expected) {
    assertThat(DeviceChoice.parse(choice).gpuFor(localRank, gpus, WHY)).isEqualTo(expected);
  }

  @Test
  void shouldGiveTheReasonIfARequestedGpuIsMissing() {
    assertThatThrownBy(() -> DeviceChoice.CUDA.gpuFor(0, 0, WHY))
        .isInstanceOf(InvalidUsage.class)
        .hasMessageContaining(WHY)
        .hasMessageContaining("device=host");
    assertThatThrownBy(() -> DeviceChoice.cuda(4).gpuFor(0, 4, WHY))
        .isInstanceOf(InvalidUsage.class)
        .hasMessageContaining("cuda:4")
        .hasMessageContaining("4 GPUs");
  }
}
