// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.testing;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.InvalidUsage;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.assertj.core.api.AbstractThrowableAssert;
import org.assertj.core.api.ThrowableAssert.ThrowingCallable;
import reactor.core.publisher.Mono;

/** Asserts how an operation ends, within a minute. */
public final class Outcomes {
  private static final Duration LONG = Duration.ofSeconds(60);

  private Outcomes() {}

  /** Subscribes to an operation and asserts that it completes. */
  public static void completes(Mono<Void> run) {
    ParkingStepVerifier.create(run, LONG).expectComplete().verify(LONG);
  }

  /** Subscribes to an operation and asserts that it fails with all parts in its message. */
  public static void fails(Mono<?> run, Class<? extends Throwable> type, String... parts) {
    ParkingStepVerifier.create(run, LONG)
        .expectErrorSatisfies(failure -> has(assertThat(failure), type, parts))
        .verify(LONG);
  }

  /** Asserts that a future fails with all parts in the message of the cause. */
  public static void fails(
      CompletableFuture<?> future, Class<? extends Throwable> type, String... parts) {
    has(assertThatThrownBy(() -> future.get(60, TimeUnit.SECONDS)).cause(), type, parts);
  }

  /** Asserts that a call is refused at once with all parts in the message. */
  public static void refuses(ThrowingCallable call, String... parts) {
    has(assertThatThrownBy(call), InvalidUsage.class, parts);
  }

  private static void has(
      AbstractThrowableAssert<?, ?> failure, Class<? extends Throwable> type, String... parts) {
    failure.isInstanceOf(type);
    for (String part : parts) {
      failure.hasMessageContaining(part);
    }
  }
}
