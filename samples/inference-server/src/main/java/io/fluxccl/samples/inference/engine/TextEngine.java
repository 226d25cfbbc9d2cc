// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.engine;

import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;

/** Continues texts. What HTTP asks of the ranks. */
public interface TextEngine {
  /**
   * Returns the text that follows a prompt, piece by piece. Cold: a subscription queues the
   * request. Cancelling frees its place at the next step. A slow subscriber delays no other
   * request: its pieces wait in its own buffer, which {@code maxTokens} bounds.
   *
   * @param request prompt and settings
   * @return pieces; the last one says why the text ends. Errors: {@link Refused}, which says why
   *     and whether to come again
   */
  Flux<TextPiece> generate(TextRequest request);

  /** Returns the present state; never blocks. Called by health checks, metrics and the page. */
  EngineStatus status();

  /** Returns the name of the model, for clients. */
  String modelName();

  /**
   * Refuses new requests from the subscription on, and completes when those that run have ended.
   */
  Mono<Void> drain();
}
