// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.testing;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.catchThrowable;

import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.TimeUnit;
import org.assertj.core.api.ThrowableAssert.ThrowingCallable;

/** Assertions about the type and the message of failures. */
public final class FailureAssertions {
  private static final long LIMIT_SECONDS = 60;

  private FailureAssertions() {}

  /** Asserts that a call is refused as invalid, with a message that has all these parts. */
  public static void assertRefused(ThrowingCallable call, String... parts) {
    assertThrows(InvalidUsage.class, call, parts);
  }

  /** Asserts that a call throws, with a message that has all these parts. */
  public static <T extends Throwable> T assertThrows(
      Class<T> type, ThrowingCallable call, String... parts) {
    Throwable thrown = catchThrowable(call);
    assertFailure(type, thrown, parts);
    return type.cast(thrown);
  }

  /** Asserts that a future fails, with a message that has all these parts; returns the failure. */
  public static FluxCclException assertFails(
      CompletableFuture<?> future, Class<? extends FluxCclException> type, String... parts) {
    FluxCclException failure = failureOf(future);
    assertFailure(type, failure, parts);
    return failure;
  }

  /** Asserts the type of a failure, and that its message has all these parts. */
  public static void assertFailure(
      Class<? extends Throwable> type, Throwable failure, String... parts) {
    assertThat(failure).isInstanceOf(type);
    for (String part : parts) {
      assertThat(failure).hasMessageContaining(part);
    }
  }

  /** As {@link #assertFailure}, and asserts which rank the failure names. */
  public static void assertFailureOf(
      int rank, Class<? extends FluxCclException> type, FluxCclException failure, String... parts) {
    assertFailure(type, failure, parts);
    assertThat(failure.rank()).as("rank of %s", failure).isEqualTo(rank);
  }

  /** Returns why a future fails, which it does within a minute. */
  public static FluxCclException failureOf(CompletableFuture<?> future) {
    try {
      Object value = future.copy().orTimeout(LIMIT_SECONDS, TimeUnit.SECONDS).join();
      throw new AssertionError("succeeded with " + value);
    } catch (CompletionException e) {
      assertThat(e.getCause()).isInstanceOf(FluxCclException.class);
      return (FluxCclException) e.getCause();
    }
  }
}
