// SPDX-License-Identifier: Apache-2.0
package io.fluxccl;

import static org.assertj.core.api.Assertions.assertThat;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

class FluxCclExceptionTest {
  @ParameterizedTest
  @EnumSource
  void shouldCopyMessageRankAndCode(ErrorCode code) {
    FluxCclException first = FluxCclException.of(code, 3, "it broke");
    FluxCclException again = first.again();
    assertThat(again).isNotSameAs(first).hasSameClassAs(first).hasMessage("it broke");
    assertThat(again).hasCause(first);
    assertThat(again.rank()).isEqualTo(first.rank());
    assertThat(again.code()).isEqualTo(code);
  }

  @Test
  void shouldKeepTheStatusOfADeviceInOtherWords() {
    DeviceFailure first = new DeviceFailure(2, "CUDA_ERROR_OUT_OF_MEMORY", "no room");
    assertThat(first.withMessage("allocate: no room"))
        .hasMessage("allocate: no room")
        .isInstanceOfSatisfying(
            DeviceFailure.class,
            failure -> {
              assertThat(failure.status()).isEqualTo(2);
              assertThat(failure.statusName()).isEqualTo("CUDA_ERROR_OUT_OF_MEMORY");
            });
  }

  @ParameterizedTest
  @EnumSource
  void shouldPrefixReportingRankIfErrorNamesNoRank(ErrorCode code) {
    FluxCclException blaming = FluxCclException.of(code, 3, "it broke");
    boolean names = blaming.rank() == 3;
    assertThat(blaming.attributedTo(5)).hasMessage(names ? "it broke" : "rank 5: it broke");
    assertThat(FluxCclException.of(code, FluxCclException.NO_RANK, "it broke").attributedTo(5))
        .hasMessage("rank 5: it broke");
  }
}
