// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.concurrent;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatCode;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.DeviceFailure;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;

class ClosingTest {
  private final List<String> closed = new ArrayList<>();

  private AutoCloseable part(String name) {
    return () -> closed.add(name);
  }

  private AutoCloseable bad(String name, Throwable failure) {
    return () -> {
      closed.add(name);
      if (failure instanceof Error) {
        throw (Error) failure;
      }
      throw (Exception) failure;
    };
  }

  @Test
  void shouldCloseAllInOrderAndSkipNulls() {
    assertThatCode(() -> Closing.all(part("a"), null, part("b"))).doesNotThrowAnyException();
    assertThat(closed).containsExactly("a", "b");
  }

  @Test
  void shouldCloseTheRestAndThrowTheFirstFailureWithTheOthers() {
    IOException first = new IOException("first");
    Error second = new InternalError("second");
    assertThatThrownBy(() -> Closing.all(bad("a", first), bad("b", second), part("c")))
        .isSameAs(first);
    assertThat(first.getSuppressed()).containsExactly(second);
    assertThat(closed).containsExactly("a", "b", "c");
  }

  @Test
  void shouldCloseTheRestIfTwoPartsThrowOneException() {
    DeviceFailure failure = new DeviceFailure(700, "CUDA_ERROR_ILLEGAL_ADDRESS", "of a test");
    assertThatThrownBy(() -> Closing.all(bad("a", failure), bad("b", failure), part("c")))
        .isSameAs(failure);
    assertThat(failure.getSuppressed()).isEmpty();
    assertThat(closed).containsExactly("a", "b", "c");
  }

  @Test
  void shouldUndoIfAStepFails() {
    assertThat(Closing.onFailure(() -> closed.add("a"), () -> "made")).isEqualTo("made");
    Closing.onFailure(() -> closed.add("b"), () -> {});
    assertThat(closed).isEmpty();

    Error failure = new OutOfMemoryError("of a test");
    RuntimeException late = new IllegalStateException("late");
    assertThatThrownBy(
            () ->
                Closing.onFailure(
                    () -> {
                      closed.add("c");
                      throw late;
                    },
                    () -> {
                      throw failure;
                    }))
        .isSameAs(failure)
        .hasSuppressedException(late);
    assertThat(closed).containsExactly("c");
  }
}
