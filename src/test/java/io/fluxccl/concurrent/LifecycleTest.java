// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.concurrent;

import static io.fluxccl.testing.FailureAssertions.assertRefused;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.Aborted;
import io.fluxccl.InvalidUsage;
import io.fluxccl.concurrent.Lifecycle.State;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

@Tag("jdk")
class LifecycleTest {
  private final Lifecycle lifecycle = new Lifecycle("thing");
  private final List<String> closed = new ArrayList<>();

  @Test
  void shouldCloseChildrenInReverseOrderOnce() {
    lifecycle.own(() -> closed.add("first"));
    lifecycle.own(() -> closed.add("second"));

    lifecycle.close();
    lifecycle.close();

    assertThat(closed).containsExactly("second", "first");
    assertThat(lifecycle.state()).isEqualTo(State.CLOSED);
    assertThatThrownBy(lifecycle::checkOpen)
        .isInstanceOf(InvalidUsage.class)
        .hasMessage("thing is closed");
  }

  @Test
  void shouldKeepTheFirstFailureOnly() {
    Aborted first = new Aborted(1, "first");
    assertThat(lifecycle.fail(first)).isTrue();
    assertThat(lifecycle.fail(new Aborted(2, "second"))).isFalse();

    assertThat(lifecycle.state()).isEqualTo(State.FAILED);
    assertThat(lifecycle.failed()).isNotDone();
    lifecycle.announceFailure();
    assertThat(lifecycle.failed()).isCompletedWithValue(first);
    assertThatThrownBy(lifecycle::checkOpen).isInstanceOf(Aborted.class).hasCause(first);

    lifecycle.close();
    assertThat(lifecycle.state()).isEqualTo(State.CLOSED);
    assertThat(lifecycle.failure()).isSameAs(first);
  }

  @Test
  void shouldCloseTheOtherChildrenWhenOneCannotBeClosed() {
    lifecycle.own(() -> closed.add("first"));
    IllegalStateException stuck = new IllegalStateException("stuck");
    lifecycle.own(
        () -> {
          throw stuck;
        });

    assertThatThrownBy(lifecycle::close).isSameAs(stuck);
    assertThat(closed).containsExactly("first");
    assertThat(lifecycle.state()).isEqualTo(State.CLOSED);
  }

  @Test
  void shouldCloseAChildThatIsAddedAfterClose() {
    lifecycle.close();
    assertRefused(() -> lifecycle.own(() -> closed.add("late")));
    assertThat(closed).containsExactly("late");
  }

  @Test
  void shouldNotCloseADisownedChild() {
    AutoCloseable child = lifecycle.own(() -> closed.add("child"));
    assertThat(lifecycle.disown(child)).isTrue();
    assertThat(lifecycle.disown(child)).isFalse();
    lifecycle.close();
    assertThat(closed).isEmpty();
  }

  @Test
  void shouldNotFailAfterClose() {
    lifecycle.close();
    assertThat(lifecycle.fail(new Aborted(0, "late"))).isFalse();
    assertThat(lifecycle.failure()).isNull();
  }
}
