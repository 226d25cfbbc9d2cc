// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.http;

import static org.assertj.core.api.Assertions.assertThat;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.fluxccl.samples.inference.http.ConnectionGuard.Limits;
import io.fluxccl.samples.inference.model.ChatTemplate;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.List;
import java.util.stream.Collectors;

/** An API with a fake engine, and a client. Fails when it is closed if an event loop blocked. */
final class Served implements AutoCloseable {
  private static final Duration LONG = Duration.ofSeconds(60);

  final FakeEngine engine = new FakeEngine();
  final HttpApi api;
  final HttpClient client = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();

  private static String joined(List<ChatTemplate.Message> messages) {
    return messages.stream().map(ChatTemplate.Message::content).collect(Collectors.joining("\n"));
  }

  Served() {
    this(limits(10_000, LONG, LONG, LONG));
  }

  Served(Limits limits) {
    api = new HttpApi(engine, Served::joined, "127.0.0.1", 0, limits);
    api.start().block();
  }

  static Limits limits(int connections, Duration head, Duration idle, Duration body) {
    Duration probe = Duration.ofMillis(100);
    return new Limits(connections, head, idle, body, Duration.ofSeconds(1), probe);
  }

  URI uri(String path) {
    return URI.create("http://127.0.0.1:" + api.port() + path);
  }

  HttpResponse<String> get(String path) {
    return send(HttpRequest.newBuilder(uri(path)));
  }

  HttpResponse<String> post(String path, String body, String... headers) {
    HttpRequest.Builder request =
        HttpRequest.newBuilder(uri(path)).POST(HttpRequest.BodyPublishers.ofString(body));
    return send(headers.length == 0 ? request : request.headers(headers));
  }

  HttpResponse<String> send(HttpRequest.Builder request) {
    try {
      return client.send(
          request.timeout(Duration.ofSeconds(60)).build(), HttpResponse.BodyHandlers.ofString());
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    } catch (InterruptedException e) {
      throw new AssertionError(e);
    }
  }

  static JsonNode json(String text) {
    try {
      return new ObjectMapper().readTree(text);
    } catch (IOException e) {
      throw new UncheckedIOException(text, e);
    }
  }

  static JsonNode json(HttpResponse<String> response) {
    assertThat(response.headers().firstValue("Content-Type")).contains("application/json");
    return json(response.body());
  }

  /** The data of each event. */
  static List<String> events(HttpResponse<String> response) {
    assertThat(response.headers().firstValue("Content-Type")).contains("text/event-stream");
    assertThat(response.body()).endsWith("\n\n");
    return List.of(response.body().split("\n\n")).stream()
        .peek(event -> assertThat(event).startsWith("data: "))
        .map(event -> event.substring("data: ".length()))
        .toList();
  }

  @Override
  public void close() {
    engine.drained.tryEmitEmpty();
    api.stop(Duration.ofSeconds(2)).block();
    List<String> blocked = List.copyOf(BlockedThreads.CALLS);
    BlockedThreads.CALLS.clear();
    assertThat(blocked).isEmpty();
  }
}
