// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.http;

import io.fluxccl.samples.inference.engine.EngineStatus;
import io.fluxccl.samples.inference.engine.Refused;
import io.fluxccl.samples.inference.engine.TextEngine;
import io.fluxccl.samples.inference.engine.TextPiece;
import io.fluxccl.samples.inference.engine.TextPiece.End;
import io.fluxccl.samples.inference.engine.TextRequest;
import java.time.Duration;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.function.Function;
import java.util.function.Supplier;
import java.util.stream.IntStream;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;
import reactor.core.publisher.Sinks;

/** Answers as a test says. */
final class FakeEngine implements TextEngine {
  static final String MODEL = "tiny/llama";

  final Queue<TextRequest> requests = new ConcurrentLinkedQueue<>();
  final Sinks.Empty<Void> drained = Sinks.empty();
  volatile String model = MODEL;
  volatile boolean draining;
  volatile Function<TextRequest, Flux<TextPiece>> script =
      request -> answer(End.STOP, "Hello", ",", "", " wörld");
  volatile Supplier<EngineStatus> status = () -> status(true, "serving");

  /** An answer of these pieces, to a prompt of 3 tokens. */
  static Flux<TextPiece> answer(End end, String... texts) {
    return Flux.range(1, texts.length)
        .map(n -> new TextPiece(texts[n - 1], 3, n, n == texts.length ? end : End.NOT_YET));
  }

  static Refused refused(Refused.Reason reason) {
    return new Refused(reason, "It is " + reason, Duration.ofMillis(1500));
  }

  static EngineStatus status(boolean ready, String stateOfRank1) {
    return status(ready, stateOfRank1, 0, null);
  }

  /** The status after five generations, the last of which failed for this reason. */
  static EngineStatus failed(String reason) {
    return status(false, "missing", 5, reason);
  }

  private static EngineStatus status(
      boolean ready, String stateOfRank1, long restarts, String lastFailure) {
    List<EngineStatus.Rank> ranks =
        IntStream.range(0, 4)
            .mapToObj(
                n ->
                    new EngineStatus.Rank(
                        n, "NVIDIA H200 (GPU " + n + ")", n == 1 ? stateOfRank1 : "serving"))
            .toList();
    return new EngineStatus(
        ready, 2, ranks, 7, 3, 64, 384, 1024, 123, 4567, 3.25, 0.18, restarts, lastFailure);
  }

  @Override
  public Flux<TextPiece> generate(TextRequest request) {
    return Flux.defer(
        () -> {
          requests.add(request);
          return draining ? Flux.error(refused(Refused.Reason.UNAVAILABLE)) : script.apply(request);
        });
  }

  @Override
  public EngineStatus status() {
    return status.get();
  }

  @Override
  public String modelName() {
    return model;
  }

  @Override
  public Mono<Void> drain() {
    return Mono.defer(
        () -> {
          draining = true;
          return drained.asMono();
        });
  }
}
