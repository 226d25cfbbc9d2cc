// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.testing;

import static io.fluxccl.testing.FailureAssertions.assertFailure;
import static io.fluxccl.testing.FailureAssertions.assertRefused;
import static io.fluxccl.testing.FailureAssertions.assertThrows;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.FluxCclException;
import io.fluxccl.testkit.LocalRank;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
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
        .expectErrorSatisfies(failure -> assertFailure(type, failure, parts))
        .verify(LONG);
  }

  /** Asserts that a future fails with all parts in the message of the cause. */
  public static void fails(
      CompletableFuture<?> future, Class<? extends Throwable> type, String... parts) {
    Exception thrown = assertThrows(Exception.class, () -> future.get(60, TimeUnit.SECONDS));
    assertFailure(type, thrown.getCause(), parts);
  }

  /** Asserts that a call is refused at once with all parts in the message. */
  public static void refuses(ThrowingCallable call, String... parts) {
    assertRefused(call, parts);
  }

  /** Asserts that the job of a rank fails, with all parts in the message; returns the failure. */
  public static FluxCclException failsJob(
      LocalRank rank, Class<? extends FluxCclException> type, String... parts) {
    assertThat(rank.communicator().failed()).succeedsWithin(LONG);
    FluxCclException failure = rank.communicator().failure();
    assertFailure(type, failure, parts);
    return failure;
  }
}
