// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.http;

import io.fluxccl.samples.inference.engine.Refused;
import io.fluxccl.samples.inference.engine.TextEngine;
import io.fluxccl.samples.inference.engine.TextPiece;
import io.fluxccl.samples.inference.engine.TextRequest;
import io.fluxccl.samples.inference.http.AnswerFormat.Part;
import io.fluxccl.samples.inference.http.ConnectionGuard.Limits;
import io.fluxccl.samples.inference.model.ChatTemplate;
import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import io.netty.handler.codec.http.HttpHeaderNames;
import io.netty.handler.codec.http.HttpVersion;
import java.io.ByteArrayOutputStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import reactor.core.Scannable;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;
import reactor.core.publisher.Sinks;
import reactor.core.scheduler.Scheduler;
import reactor.core.scheduler.Schedulers;
import reactor.netty.http.server.HttpServerRequest;
import reactor.netty.http.server.HttpServerResponse;

/** Answers requests for text. */
final class Completions {
  private static final int MAX_BODY = 1 << 20;

  /** So much of a body is read: a client that is cut off while it sends often misses the answer. */
  private static final int MOST_READ = 16 * MAX_BODY;

  private final TextEngine engine;
  private final ApiMetrics metrics;
  private final Limits limits;
  private final Sinks.Empty<Void> cut = Sinks.empty();

  Completions(TextEngine engine, ApiMetrics metrics, Limits limits) {
    this.engine = engine;
    this.metrics = metrics;
    this.limits = limits;
  }

  /**
   * Answers one.
   *
   * @param template makes a prompt of messages; null to answer a prompt
   */
  Mono<Void> answer(HttpServerRequest request, HttpServerResponse response, ChatTemplate template) {
    String model = engine.modelName();
    String timeout = request.requestHeaders().get("X-Request-Timeout-Ms");
    return body(request, response)
        .map(body -> ApiRequest.parse(body, engine, template, timeout))
        .flatMap(
            asked -> {
              AnswerFormat format = new AnswerFormat(asked, model);
              Flux<Part> parts = generate(asked).publishOn(loopOf(response));
              return (asked.stream()
                      ? stream(parts, format, response)
                      : whole(parts, format, response))
                  .timeout(asked.texts().get(0).deadline().plus(limits.slowReader()));
            });
  }

  /** Ends all answers, with an error. */
  void cut() {
    cut.tryEmitEmpty();
  }

  /** Returns the parts of all choices in the order of their arrival. */
  private Flux<Part> generate(ApiRequest request) {
    List<Flux<Part>> choices = new ArrayList<>();
    for (TextRequest text : request.texts()) {
      int index = choices.size();
      choices.add(metrics.observe(generate(text)).map(piece -> new Part(index, piece)));
    }
    Flux<Part> parts = choices.size() == 1 ? choices.get(0) : Flux.merge(choices);
    return request.chat() ? parts.onErrorMap(Refused.class, Completions::ofChat) : parts;
  }

  /** A chat has messages for a prompt. */
  private static Throwable ofChat(Refused refused) {
    boolean isPrompt = "prompt".equals(refused.param());
    return isPrompt ? Refused.invalid("messages", refused.getMessage()) : refused;
  }

  private Flux<TextPiece> generate(TextRequest request) {
    Refused refused =
        new Refused(Refused.Reason.UNAVAILABLE, "The server shuts down", Duration.ofSeconds(1));
    Mono<TextPiece> whenCut =
        Mono.defer(() -> cut.scan(Scannable.Attr.TERMINATED) ? Mono.error(refused) : Mono.empty());
    return engine.generate(request).takeUntilOther(cut.asMono()).concatWith(whenCut);
  }

  /** The engine's threads only hand pieces over; JSON is written by the connection's. */
  private static Scheduler loopOf(HttpServerResponse response) {
    AtomicReference<Scheduler> loop = new AtomicReference<>();
    response.withConnection(
        connection -> loop.set(Schedulers.fromExecutor(connection.channel().eventLoop())));
    return loop.get();
  }

  private Mono<byte[]> body(HttpServerRequest request, HttpServerResponse response) {
    ApiError tooLarge =
        ApiError.client(413, "The body has more than " + MAX_BODY + " bytes", null, "too_large");
    String length = request.requestHeaders().get(HttpHeaderNames.CONTENT_LENGTH, "0");
    AtomicLong read = new AtomicLong();
    Mono<byte[]> body =
        request
            .receive()
            .asByteArray()
            .collect(
                ByteArrayOutputStream::new,
                (all, part) -> {
                  long bytes = read.addAndGet(part.length);
                  if (bytes > MOST_READ) {
                    throw tooLarge;
                  }
                  if (bytes <= MAX_BODY) {
                    all.writeBytes(part);
                  }
                })
            .map(
                all -> {
                  if (read.get() > MAX_BODY) {
                    throw tooLarge;
                  }
                  return all.toByteArray();
                });
    ApiError tooSlow =
        ApiError.client(408, "The body is not there after " + limits.body(), null, "timeout");
    ApiError cutOff = ApiError.client(400, "The body ends too early", null, "invalid_body");
    return (Long.parseLong(length) > MOST_READ ? Mono.<byte[]>error(tooLarge) : body)
        .timeout(limits.body(), Mono.error(tooSlow), loopOf(response))
        .onErrorMap(e -> e instanceof ApiError ? e : cutOff)
        .doOnError(e -> response.keepAlive(false)); // rather than to read the rest
  }

  private static Mono<Void> whole(
      Flux<Part> parts, AnswerFormat format, HttpServerResponse response) {
    return parts
        .doOnNext(format::add)
        .then(Mono.defer(() -> HttpApi.json(response, 200, format.whole())));
  }

  /** The status waits for the first piece; a later error is sent as an event. */
  private static Mono<Void> stream(
      Flux<Part> parts, AnswerFormat format, HttpServerResponse response) {
    return parts
        .switchOnFirst(
            (first, all) ->
                first.isOnError()
                    ? Mono.<Void>error(first.getThrowable())
                    : response
                        .sse()
                        .chunkedTransfer(response.version().equals(HttpVersion.HTTP_1_1))
                        .header(HttpHeaderNames.CACHE_CONTROL, "no-cache")
                        .header("X-Accel-Buffering", "no")
                        .send(events(all, format), event -> true)
                        .then())
        .then();
  }

  private static Flux<ByteBuf> events(Flux<Part> parts, AnswerFormat format) {
    return parts
        .map(format::events)
        .filter(events -> !events.isEmpty())
        .onErrorResume(e -> Mono.just(AnswerFormat.event(ApiError.of(e).body())))
        .map(events -> Unpooled.wrappedBuffer(events.getBytes(StandardCharsets.UTF_8)));
  }
}
