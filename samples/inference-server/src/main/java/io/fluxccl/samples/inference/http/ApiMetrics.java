// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.http;

import io.fluxccl.samples.inference.engine.EngineStatus;
import io.fluxccl.samples.inference.engine.TextEngine;
import io.fluxccl.samples.inference.engine.TextPiece;
import io.micrometer.core.instrument.FunctionCounter;
import io.micrometer.core.instrument.Gauge;
import io.micrometer.core.instrument.Timer;
import io.micrometer.core.instrument.binder.jvm.JvmGcMetrics;
import io.micrometer.core.instrument.binder.jvm.JvmMemoryMetrics;
import io.micrometer.prometheusmetrics.PrometheusConfig;
import io.micrometer.prometheusmetrics.PrometheusMeterRegistry;
import java.time.Duration;
import java.util.Locale;
import java.util.function.ToDoubleFunction;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Timed;

/** The metrics for Prometheus. */
final class ApiMetrics {
  private final PrometheusMeterRegistry registry =
      new PrometheusMeterRegistry(PrometheusConfig.DEFAULT);
  private final Timer firstToken = timer("inference.first.token", "From request to first token");
  private final Timer nextToken = timer("inference.next.token", "From a token to the next");
  private final JvmGcMetrics gc = new JvmGcMetrics();
  private final TextEngine engine;

  ApiMetrics(TextEngine engine) {
    this.engine = engine;
    gauge("inference.running", "Requests in the batch", EngineStatus::running);
    gauge("inference.waiting", "Requests in the queue", EngineStatus::waiting);
    gauge("inference.waiting.max", "The queue's bound", EngineStatus::maxWaiting);
    gauge("inference.kv.pages.used", "Pages of the cache in use", EngineStatus::pagesUsed);
    gauge("inference.kv.pages", "Pages of the cache", EngineStatus::pages);
    gauge("inference.step.seconds", "Time of a step, averaged", s -> s.stepMillis() / 1000);
    gauge(
        "inference.communication.share",
        "Part of a step that its all-reduces take",
        EngineStatus::communicationShare);
    gauge("inference.generation", "Generation of the ranks", EngineStatus::generation);
    gauge("inference.ready", "1 if requests are served", s -> s.ready() ? 1 : 0);
    gauge("inference.ranks", "Ranks of the job", s -> s.ranks().size());
    gauge("inference.ranks.serving", "Ranks that serve", s -> ranks(s, "serving"));
    gauge("inference.ranks.silent", "Ranks that answer no heartbeat", s -> ranks(s, "silent"));
    gauge("inference.ranks.missing", "Ranks that died", s -> ranks(s, "missing"));
    counter("inference.steps", "Steps", EngineStatus::steps);
    counter("inference.tokens", "Tokens generated", EngineStatus::tokens);
    counter("inference.restarts", "Generations that failed", EngineStatus::restarts);
    new JvmMemoryMetrics().bindTo(registry);
    gc.bindTo(registry);
  }

  /** Counts a request. */
  void request(String path, String status) {
    registry.counter("inference.requests", "path", path, "status", status).increment();
  }

  /** Observes an answer. */
  Flux<TextPiece> observe(Flux<TextPiece> pieces) {
    return pieces
        .timed()
        .doOnNext(this::piece)
        .map(Timed::get)
        .doOnError(e -> answer("error"))
        .doOnCancel(() -> answer("cancelled"));
  }

  private void piece(Timed<TextPiece> piece) {
    boolean isFirst = piece.elapsed().equals(piece.elapsedSinceSubscription());
    (isFirst ? firstToken : nextToken).record(piece.elapsed());
    if (piece.get().end() != TextPiece.End.NOT_YET) {
      answer(piece.get().end().name());
    }
  }

  /** The text for Prometheus. Takes a while; not for an event loop. */
  String scrape() {
    return registry.scrape();
  }

  void close() {
    gc.close();
    registry.close();
  }

  private void answer(String end) {
    registry.counter("inference.answers", "end", end.toLowerCase(Locale.ROOT)).increment();
  }

  private static double ranks(EngineStatus status, String state) {
    return status.ranks().stream().filter(rank -> rank.state().equals(state)).count();
  }

  private Timer timer(String name, String description) {
    return Timer.builder(name)
        .description(description)
        .publishPercentileHistogram()
        .minimumExpectedValue(Duration.ofMillis(1))
        .maximumExpectedValue(Duration.ofSeconds(60))
        .register(registry);
  }

  private void gauge(String name, String description, ToDoubleFunction<EngineStatus> value) {
    Gauge.builder(name, engine, e -> value.applyAsDouble(e.status()))
        .description(description)
        .register(registry);
  }

  private void counter(String name, String description, ToDoubleFunction<EngineStatus> value) {
    FunctionCounter.builder(name, engine, e -> value.applyAsDouble(e.status()))
        .description(description)
        .register(registry);
  }
}
