// SPDX-License-Identifier: Apache-2.0
package io.fluxccl;

import static io.fluxccl.testing.FailureAssertions.assertRefused;
import static org.assertj.core.api.Assertions.assertThat;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Small types that all packages share. */
class CoreTypesTest {
  @ParameterizedTest
  @EnumSource
  void shouldMakeAndCopyTheFailureOfEveryCode(ErrorCode code) {
    FluxCclException failure = FluxCclException.of(code, 3, "it broke");
    FluxCclException again = failure.again();
    boolean blames = code != ErrorCode.INVALID_USAGE && code != ErrorCode.DEVICE_FAILURE;
    for (FluxCclException each : List.of(failure, again)) {
      assertThat(each).hasMessage("it broke").hasSameClassAs(failure);
      assertThat(each.code()).isEqualTo(code);
      assertThat(each.rank()).isEqualTo(blames ? 3 : FluxCclException.NO_RANK);
    }
    assertThat(again).isNotSameAs(failure).hasCause(failure);
    // The rank that reports an error is named if the error names none.
    assertThat(failure.attributedTo(5)).hasMessage(blames ? "it broke" : "rank 5: it broke");
    assertThat(FluxCclException.of(code, FluxCclException.NO_RANK, "it broke").attributedTo(5))
        .hasMessage("rank 5: it broke");
  }

  @Test
  void shouldKeepTheStatusOfADeviceInOtherWords() {
    DeviceFailure first = new DeviceFailure(2, "CUDA_ERROR_OUT_OF_MEMORY", "no room");
    DeviceFailure again = (DeviceFailure) first.withMessage("allocate: no room");
    assertThat(again).hasMessage("allocate: no room");
    assertThat(again.status()).isEqualTo(2);
    assertThat(again.statusName()).isEqualTo("CUDA_ERROR_OUT_OF_MEMORY");
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
    assertRefused(() -> Deadline.after(Duration.ofMillis(-1)));
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
    assertThat(Stream.of(DataType.values()).map(DataType::label).collect(Collectors.joining(" ")))
        .isEqualTo("int8 uint8 int32 uint32 int64 uint64 half float double bfloat16 f8e4m3 f8e5m2");
  }

  @Test
  void shouldKnowTypesAndOperationsByTheirNcclTestsNames() {
    assertThat(DataType.ofLabel("half")).isEqualTo(DataType.FLOAT16);
    assertThat(DataType.ofLabel("bfloat16").size()).isEqualTo(2);
    assertThat(ReduceOp.ofLabel("avg")).isEqualTo(ReduceOp.AVG);
    assertRefused(() -> DataType.ofLabel("f16"), "half");
    assertRefused(() -> ReduceOp.ofLabel("plus"), "sum");
  }
}
