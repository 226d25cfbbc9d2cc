// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.testing;

import java.time.Duration;
import reactor.core.publisher.Mono;
import reactor.test.StepVerifier;

/**
 * A {@link StepVerifier} for a rank that shares its processors with those it waits for: the thread
 * parks until all has ended, where a plain one polls without a pause.
 */
public final class ParkingStepVerifier {
  private ParkingStepVerifier() {}

  /**
   * Begins to verify what {@code verify} subscribes to.
   *
   * @param limit how long the thread parks; then the error is that of {@code block}
   */
  public static <T> StepVerifier.FirstStep<T> create(Mono<T> mono, Duration limit) {
    return StepVerifier.create(
        Mono.fromCallable(() -> mono.materialize().block(limit)).dematerialize());
  }
}
