// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.testing;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.catchThrowable;

import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import org.assertj.core.api.ThrowableAssert.ThrowingCallable;

/** Asserts the types, ranks and texts of failures. */
public final class Failures {
  private Failures() {}

  /** Asserts that a call throws an exception of this type, whose message has all these texts. */
  public static void assertFails(
      Class<? extends Throwable> type, ThrowingCallable call, String... texts) {
    assertFailure(type, catchThrowable(call), texts);
  }

  /** Asserts that a call is refused as a wrong use, by a message that has all these texts. */
  public static void assertUsage(ThrowingCallable call, String... texts) {
    assertFails(InvalidUsage.class, call, texts);
  }

  /** Asserts that this is an exception of this type, whose message has all these texts. */
  public static void assertFailure(
      Class<? extends Throwable> type, Throwable failure, String... texts) {
    assertThat(failure).isInstanceOf(type);
    for (String text : texts) {
      assertThat(failure).hasMessageContaining(text);
    }
  }

  /** As {@link #assertFailure}, and asserts which rank the failure names. */
  public static void assertFailureOf(
      int rank, Class<? extends FluxCclException> type, FluxCclException failure, String... texts) {
    assertFailure(type, failure, texts);
    assertThat(failure.rank()).as("rank of %s", failure).isEqualTo(rank);
  }
}
