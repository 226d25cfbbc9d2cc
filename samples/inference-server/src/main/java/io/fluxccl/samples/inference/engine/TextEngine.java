// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.engine;

import io.fluxccl.samples.inference.model.GenerationDefaults;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;

/** Continues texts. The interface between HTTP and the ranks. */
public interface TextEngine {
  /**
   * Returns the text that follows a prompt, piece by piece. Cold: a subscription queues the
   * request. Cancelling frees its slot at the next step. A slow subscriber delays no other request:
   * its pieces wait in its own buffer, which {@code maxTokens} bounds.
   *
   * @param request prompt and settings
   * @return pieces; the last one has the reason of the end. Errors: {@link Refused}, with the
   *     reason and whether to retry
   */
  Flux<TextPiece> generate(TextRequest request);

  /** Returns the present state; never blocks. Called by health checks, metrics and the page. */
  EngineStatus status();

  /** Returns how tokens are chosen for requests that do not say it. */
  default GenerationDefaults defaults() {
    return GenerationDefaults.NONE;
  }

  /** Returns the name of the model, for clients. */
  String modelName();

  /**
   * Refuses new requests from the subscription on, and completes when no answer is open: each
   * subscriber has received the end or an error, or has cancelled.
   */
  Mono<Void> drain();
}
