package io.fluxccl;

import static org.assertj.core.api.Assertions.assertThat;

import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

class FluxCclExceptionTest {
  @ParameterizedTest
  @EnumSource
  void shouldTellTheSameAgain(ErrorCode code) {
    FluxCclException first = FluxCclException.of(code, 3, "it broke");
    FluxCclException again = first.again();
    assertThat(again).isNotSameAs(first).hasSameClassAs(first).hasMessage("it broke");
    assertThat(again).hasCause(first);
    assertThat(again.rank()).isEqualTo(first.rank());
    assertThat(again.code()).isEqualTo(code);
  }
}
