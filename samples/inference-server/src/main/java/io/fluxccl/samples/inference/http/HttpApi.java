// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.http;

import com.fasterxml.jackson.databind.node.ObjectNode;
import io.fluxccl.samples.inference.engine.EngineStatus;
import io.fluxccl.samples.inference.engine.TextEngine;
import io.fluxccl.samples.inference.http.ConnectionGuard.Limits;
import io.fluxccl.samples.inference.model.ChatTemplate;
import io.netty.channel.ChannelOption;
import io.netty.channel.group.DefaultChannelGroup;
import io.netty.handler.codec.http.HttpHeaderNames;
import io.netty.handler.codec.http.HttpVersion;
import io.netty.util.concurrent.GlobalEventExecutor;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import reactor.core.publisher.Mono;
import reactor.core.scheduler.Schedulers;
import reactor.netty.DisposableChannel;
import reactor.netty.DisposableServer;
import reactor.netty.http.server.HttpServer;
import reactor.netty.http.server.HttpServerRequest;
import reactor.netty.http.server.HttpServerResponse;

/**
 * Serves an engine by HTTP. Outlives the generations of the ranks: while none serves, the engine
 * refuses requests, and clients get the reason.
 */
public final class HttpApi {
  private static final Logger LOG = LoggerFactory.getLogger(HttpApi.class);
  private static final String ENCODED = "(?s)%[0-9a-fA-F]{2}.*";
  private static final String MODEL = "/v1/models/";

  private final TextEngine engine;
  private final ApiMetrics metrics;
  private final Completions completions;
  private final HttpServer server;
  private final Map<String, Route> routes;
  private final long created = Instant.now().getEpochSecond();
  private final ConnectionGuard.Open open = new ConnectionGuard.Open();
  private volatile boolean stopping;
  private volatile DisposableServer bound;

  private record Route(String method, Handler handler) {}

  private interface Handler {
    Mono<Void> handle(HttpServerRequest request, HttpServerResponse response);
  }

  /**
   * Creates a server, which does not listen yet.
   *
   * @param chat makes a prompt of the messages of a chat
   * @param host the address to listen at; {@code 0.0.0.0} for all
   * @param port 0 for any free one
   */
  public HttpApi(TextEngine engine, ChatTemplate chat, String host, int port) {
    this(engine, chat, host, port, Limits.ofProcess());
  }

  HttpApi(TextEngine engine, ChatTemplate chat, String host, int port, Limits limits) {
    this.engine = engine;
    this.metrics = new ApiMetrics(engine);
    this.completions = new Completions(engine, metrics, limits);
    this.routes = routes(chat, resource("/page/index.html"));
    this.server =
        HttpServer.create()
            .host(host)
            .port(port)
            .channelGroup(new DefaultChannelGroup(GlobalEventExecutor.INSTANCE)) // see stop
            .childOption(ChannelOption.ALLOW_HALF_CLOSURE, true)
            .doOnChannelInit(
                (observer, channel, address) -> ConnectionGuard.install(channel, limits, open))
            .handle(this::handle);
  }

  /** Listens; completes when it does. */
  public Mono<Void> start() {
    return server
        .bind()
        .doOnNext(listening -> bound = listening)
        .doOnNext(listening -> LOG.info("Serving HTTP at {}", listening.address()))
        .then();
  }

  /** Returns the port that it listens at. */
  public int port() {
    return bound.port();
  }

  /**
   * Stops gracefully: reports that it is not ready, drains the engine, which refuses new requests,
   * and closes all connections after their answers are sent.
   *
   * @param limit for the engine, and again for the connections
   */
  public Mono<Void> stop(Duration limit) {
    return stop(limit, limit);
  }

  Mono<Void> stop(Duration drainLimit, Duration connectionLimit) {
    return Mono.defer(
            () -> {
              stopping = true;
              return engine.drain().timeout(drainLimit);
            })
        .onErrorResume(e -> unfinished("Requests still run", e))
        .doOnTerminate(completions::cut)
        .then(
            Mono.<Void>fromRunnable(() -> bound.disposeNow(connectionLimit)) // waits for answers
                .subscribeOn(Schedulers.boundedElastic()))
        .onErrorResume(e -> unfinished("Answers are still sent", e))
        .doFinally(end -> metrics.close());
  }

  private static Mono<Void> unfinished(String what, Throwable failure) {
    LOG.warn("{} at the limit: {}", what, failure.toString());
    return Mono.empty();
  }

  private Map<String, Route> routes(ChatTemplate chat, String page) {
    return Map.of(
        "/v1/completions",
        new Route("POST", (in, out) -> completions.answer(in, out, null)),
        "/v1/chat/completions",
        new Route("POST", (in, out) -> completions.answer(in, out, chat)),
        "/v1/models",
        new Route("GET", (in, out) -> models(out)),
        MODEL,
        new Route("GET", this::model),
        "/health/live",
        new Route("GET", (in, out) -> json(out, 200, Map.of("live", true))),
        "/health/ready",
        new Route("GET", (in, out) -> ready(out)),
        "/status",
        new Route("GET", (in, out) -> json(out, 200, status())),
        "/metrics",
        new Route("GET", (in, out) -> metrics(out)),
        "/",
        new Route("GET", (in, out) -> text(out, "text/html; charset=utf-8", page)));
  }

  private Mono<Void> handle(HttpServerRequest request, HttpServerResponse response) {
    if (stopping) {
      response.keepAlive(false);
    }
    String path = path(request.uri());
    String name = path.startsWith(MODEL) ? MODEL : path;
    Route route = routes.get(name);
    return Mono.defer(() -> route(route, request).handle(request, response))
        .onErrorResume(e -> error(e, response))
        .doFinally(end -> count(route == null ? "other" : name, response));
  }

  private static Handler route(Route route, HttpServerRequest request) {
    boolean isCurrent = request.version().equals(HttpVersion.HTTP_1_1);
    if (isCurrent && request.requestHeaders().getAll(HttpHeaderNames.HOST).size() != 1) {
      throw ApiError.client(400, "HTTP/1.1 needs one header 'Host'", null, "invalid_host");
    }
    String method = request.method().name();
    if (route == null) {
      throw ApiError.client(404, "There is nothing at " + path(request.uri()), null, "not_found");
    }
    if (method.equals(route.method) || method.equals("HEAD") && route.method.equals("GET")) {
      return route.handler;
    }
    return (in, out) -> {
      out.header(HttpHeaderNames.ALLOW, route.method);
      throw ApiError.client(405, "Use " + route.method, null, "method_not_allowed");
    };
  }

  private void count(String path, HttpServerResponse response) {
    boolean told = response.hasSentHeaders();
    metrics.request(path, told ? String.valueOf(response.status().code()) : "cancelled");
  }

  private static Mono<Void> error(Throwable failure, HttpServerResponse response) {
    if (response.hasSentHeaders()) {
      LOG.warn("An answer was cut off: {}", failure.toString());
      response.withConnection(DisposableChannel::dispose);
      return Mono.empty();
    }
    ApiError error = ApiError.of(failure);
    if (error.retryAfterSeconds() > 0) {
      response.header(HttpHeaderNames.RETRY_AFTER, String.valueOf(error.retryAfterSeconds()));
    }
    return json(response, error.status, error.body());
  }

  private Mono<Void> ready(HttpServerResponse response) {
    EngineStatus status = engine.status();
    if (status.ready() && !stopping) {
      return json(response, 200, Map.of("ready", true));
    }
    String missing =
        status.ranks().stream()
            .filter(rank -> !rank.state().equals("serving"))
            .map(rank -> "rank " + rank.rank() + " is " + rank.state())
            .collect(Collectors.joining(", "));
    String reason =
        stopping ? "shutting down" : missing.isEmpty() ? "the ranks have not met" : missing;
    String failure = status.lastFailure();
    if (failure != null) {
      reason += "; the last generation failed: " + failure;
    }
    return json(response, 503, Map.of("ready", false, "reason", reason));
  }

  private ObjectNode status() {
    ObjectNode status = Json.MAPPER.valueToTree(engine.status());
    return status.put("model", engine.modelName()).put("stopping", stopping);
  }

  private Mono<Void> models(HttpServerResponse response) {
    return json(response, 200, Map.of("object", "list", "data", List.of(model())));
  }

  private ObjectNode model() {
    return Json.object()
        .put("id", engine.modelName())
        .put("object", "model")
        .put("created", created)
        .put("owned_by", "fluxccl");
  }

  private Mono<Void> model(HttpServerRequest request, HttpServerResponse response) {
    String id = decoded(path(request.uri()).substring(MODEL.length()));
    if (!id.equals(engine.modelName())) {
      throw ApiRequest.unknownModel(id);
    }
    return json(response, 200, model());
  }

  /** Returns a target's path as it is sent: it need not be well-formed. */
  private static String path(String target) {
    String path = target.split("\\?", 2)[0];
    int host = path.indexOf("://");
    if (path.startsWith("/") || host < 0) {
      return path;
    }
    int slash = path.indexOf('/', host + 3); // as proxies are asked
    return slash < 0 ? "/" : path.substring(slash);
  }

  /** Returns the text of a path in UTF-8, with or without percent encoding. */
  private static String decoded(String path) {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    for (int i = 0; i < path.length(); i++) {
      boolean isEncoded = path.startsWith("%", i) && path.substring(i).matches(ENCODED);
      bytes.write(isEncoded ? Integer.parseInt(path.substring(i + 1, i + 3), 16) : path.charAt(i));
      i += isEncoded ? 2 : 0;
    }
    return bytes.toString(StandardCharsets.UTF_8);
  }

  private Mono<Void> metrics(HttpServerResponse response) {
    return Mono.fromCallable(metrics::scrape)
        .subscribeOn(Schedulers.boundedElastic())
        .flatMap(text -> text(response, "text/plain; version=0.0.4; charset=utf-8", text));
  }

  /** Sends a value as JSON. */
  static Mono<Void> json(HttpServerResponse response, int status, Object value) {
    return text(response.status(status), "application/json", Json.text(value));
  }

  private static Mono<Void> text(HttpServerResponse response, String type, String text) {
    byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
    return response
        .header(HttpHeaderNames.CONTENT_TYPE, type)
        .header(HttpHeaderNames.CONTENT_LENGTH, String.valueOf(bytes.length))
        .header("X-Content-Type-Options", "nosniff")
        .sendByteArray(Mono.just(bytes))
        .then();
  }

  private static String resource(String name) {
    try (InputStream in = HttpApi.class.getResourceAsStream(name)) {
      return new String(in.readAllBytes(), StandardCharsets.UTF_8);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }
}
