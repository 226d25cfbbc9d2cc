// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.testing;

import java.time.Duration;
import reactor.core.publisher.Mono;
import reactor.test.StepVerifier;

/**
 * A {@link StepVerifier} for a rank that shares its processors with those it waits for: the thread
 * parks until all has ended, where a plain one polls without a pause.
 */
public final class ParkingVerifier {
  private static final Duration LIMIT = Duration.ofSeconds(120);

  private ParkingVerifier() {}

  /** Begins to verify what is subscribed to by the step that waits for it. */
  public static <T> StepVerifier.FirstStep<T> create(Mono<T> mono) {
    return StepVerifier.create(
        Mono.fromCallable(() -> mono.materialize().block(LIMIT)).dematerialize());
  }
}
