// SPDX-License-Identifier: Apache-2.0
package io.fluxccl;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.time.Duration;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Small types that all packages share. */
class CoreTypesTest {
  @ParameterizedTest
  @EnumSource(ErrorCode.class)
  void shouldMakeTheFailureOfEveryCodeAgain(ErrorCode code) {
    FluxCclException failure = FluxCclException.of(code, 3, "what happened");
    assertThat(failure.code()).isEqualTo(code);
    assertThat(failure).hasMessage("what happened");
    boolean blames = code != ErrorCode.INVALID_USAGE && code != ErrorCode.DEVICE_FAILURE;
    assertThat(failure.rank()).isEqualTo(blames ? 3 : FluxCclException.NO_RANK);
  }

  @Test
  void shouldUnwrapFailuresOfFutures() {
    Timeout timeout = new Timeout(1, "late");
    assertThat(FluxCclException.from(new CompletionException(new ExecutionException(timeout))))
        .isSameAs(timeout);
    assertThat(FluxCclException.from(new IllegalStateException("foreign")))
        .isInstanceOf(Aborted.class)
        .hasCauseInstanceOf(IllegalStateException.class);
  }

  @Test
  void shouldCountDownToADeadline() {
    Deadline deadline = Deadline.after(Duration.ofHours(1));
    assertThat(deadline.expired()).isFalse();
    assertThat(deadline.remaining()).isBetween(Duration.ofMinutes(59), Duration.ofHours(1));
    assertThat(deadline.timeout()).isEqualTo(Duration.ofHours(1));
    assertThat(Deadline.after(Duration.ZERO).expired()).isTrue();
    assertThat(Deadline.after(Duration.ofSeconds(Long.MAX_VALUE)).expired()).isFalse();
    assertThatThrownBy(() -> Deadline.after(Duration.ofMillis(-1)))
        .isInstanceOf(InvalidUsage.class);
  }

  @Test
  void shouldNeverPassWithoutALimit() {
    Deadline never = Deadline.never();
    assertThat(never.isNever()).isTrue();
    assertThat(never.expired()).isFalse();
    assertThat(never.remaining()).isEqualTo(Deadline.NO_LIMIT).isEqualTo(never.timeout());
    assertThat(never).hasToString("Deadline(never)");
    assertThat(Deadline.after(Deadline.NO_LIMIT).isNever()).isTrue();
    assertThat(Deadline.after(Duration.ofSeconds(Long.MAX_VALUE)).isNever()).isTrue();
    assertThat(Deadline.after(Duration.ofDays(20_000)).isNever()).isFalse();
  }

  @Test
  void shouldKeepTypesInTheOrderOfNcclsNumbers() {
    assertThat(DataType.values())
        .extracting(DataType::label)
        .containsExactly(
            "int8",
            "uint8",
            "int32",
            "uint32",
            "int64",
            "uint64",
            "half",
            "float",
            "double",
            "bfloat16",
            "f8e4m3",
            "f8e5m2");
  }

  @Test
  void shouldKnowTypesAndOperationsByTheirNcclTestsNames() {
    assertThat(DataType.ofLabel("half")).isEqualTo(DataType.FLOAT16);
    assertThat(DataType.ofLabel("bfloat16").size()).isEqualTo(2);
    assertThat(ReduceOp.ofLabel("avg")).isEqualTo(ReduceOp.AVG);
    assertThatThrownBy(() -> DataType.ofLabel("f16"))
        .isInstanceOf(InvalidUsage.class)
        .hasMessageContaining("half");
    assertThatThrownBy(() -> ReduceOp.ofLabel("plus"))
        .isInstanceOf(InvalidUsage.class)
        .hasMessageContaining("sum");
  }
}
