// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.http;

import static org.assertj.core.api.Assertions.assertThat;
import static org.awaitility.Awaitility.await;

import io.fluxccl.samples.inference.engine.TextPiece;
import io.fluxccl.samples.inference.engine.TextPiece.End;
import java.io.IOException;
import java.io.InputStream;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;
import reactor.netty.ByteBufFlux;
import reactor.netty.http.client.HttpClient;
import reactor.test.StepVerifier;
import reactor.test.publisher.TestPublisher;

class StreamsTest {
  private static final Duration LONG = Duration.ofSeconds(60);
  private static final String STREAM = "{\"prompt\":\"Say\",\"stream\":true}";

  private final Served served = new Served();
  private final TestPublisher<TextPiece> pieces = TestPublisher.createCold();

  @AfterEach
  void close() {
    served.close();
  }

  @Test
  void shouldSendEachPieceAtOnce() {
    served.engine.script = request -> pieces.flux();

    StepVerifier.create(answer(STREAM))
        .then(() -> next("one", End.NOT_YET))
        .assertNext(event -> assertThat(event).contains("\"text\":\"one\""))
        .then(() -> next("", End.NOT_YET))
        .then(() -> next("two", End.NOT_YET))
        .assertNext(event -> assertThat(event).contains("\"text\":\"two\""))
        .then(() -> next("", End.LENGTH))
        .assertNext(event -> assertThat(event).contains("\"length\"").endsWith("data: [DONE]\n\n"))
        .then(pieces::complete)
        .expectComplete()
        .verify(LONG);
  }

  @Test
  void shouldCancelTheRequestOfAClientThatLeaves() {
    served.engine.script = request -> pieces.flux();

    StepVerifier.create(answer(STREAM))
        .then(() -> next("one", End.NOT_YET))
        .expectNextCount(1)
        .thenCancel()
        .verify(LONG);

    await().untilAsserted(pieces::assertCancelled);
    assertThat(served.get("/metrics").body())
        .contains("inference_answers_total{end=\"cancelled\"} 1.0");
  }

  @ParameterizedTest
  @ValueSource(strings = {STREAM, "{\"prompt\":\"Say\"}"})
  void shouldCancelARequestThatStillWaits(String body) throws Exception {
    served.engine.script = request -> pieces.flux();

    try (Socket client = connect(body, "")) {
      await().until(pieces::wasSubscribed);
      assertThat(pieces.wasCancelled()).isFalse();
    }

    await().untilAsserted(pieces::assertCancelled);
    await().until(() -> served.get("/metrics").body().contains("status=\"cancelled\"} 1.0"));
  }

  @Test
  void shouldHoldUpOnlyTheSlowReader() throws Exception {
    AtomicInteger made = new AtomicInteger();
    AtomicBoolean cancelled = new AtomicBoolean();
    var quick = served.engine.script;
    served.engine.script =
        request -> request.maxTokens() == 1 ? endless(made, cancelled) : quick.apply(request);

    try (Socket client = connect("{\"prompt\":\"a\",\"stream\":true,\"max_tokens\":1}", "")) {
      await().until(() -> made.get() > 0);
      for (int n = 0; n < 20; n++) {
        assertThat(served.post("/v1/completions", STREAM).body()).contains("Hello", "[DONE]");
      }
      assertThat(made).hasValueLessThan(1000); // what fits into buffers, of 64 KiB each
      client.getInputStream().skipNBytes(1000L << 16);
      assertThat(made).hasValueGreaterThan(1000);
    }
    await().untilTrue(cancelled);
  }

  @Test
  void shouldCutOffAReaderThatIsSlowerThanTheDeadline() throws Exception {
    AtomicBoolean cancelled = new AtomicBoolean();
    served.engine.script = request -> endless(new AtomicInteger(), cancelled);

    try (Socket client = connect(STREAM, "X-Request-Timeout-Ms: 5000\r\n")) {
      await().atMost(LONG).untilTrue(cancelled);
      assertThat(endOf(client.getInputStream())).isTrue();
      String counted = "path=\"/v1/completions\",status=\"200\"} 1.0";
      await().until(() -> served.get("/metrics").body().contains(counted));
    }
  }

  @Test
  void shouldNotWaitForAnEngineThatMissesTheDeadline() {
    served.engine.script = request -> pieces.flux();

    var response = served.post("/v1/completions", STREAM, "X-Request-Timeout-Ms", "100");

    assertThat(response.statusCode()).isEqualTo(504);
    pieces.assertCancelled();
  }

  @Test
  void shouldEndStreamsBeforeItStops() {
    served.engine.script = request -> pieces.flux();
    var answer = answer(STREAM).collectList().toFuture();
    await().until(pieces::wasSubscribed);
    var stopped = served.api.stop(LONG).toFuture();
    await().until(() -> served.engine.draining);

    next("last words", End.STOP);
    pieces.complete();
    served.engine.drained.tryEmitEmpty();

    assertThat(stopped).succeedsWithin(LONG);
    assertThat(answer)
        .succeedsWithin(LONG)
        .satisfies(all -> assertThat(String.join("", all)).contains("last words", "[DONE]"));
  }

  @ParameterizedTest
  @ValueSource(booleans = {true, false})
  void shouldEndStreamsAtTheLimitOfStopping(boolean begun) {
    served.engine.script = request -> pieces.flux();
    if (begun) {
      next("one", End.NOT_YET);
    }
    var answer = answer(STREAM).collectList().toFuture();
    await().until(pieces::wasSubscribed);

    served.api.stop(Duration.ofMillis(300), LONG).block(LONG);

    assertThat(answer)
        .succeedsWithin(LONG)
        .satisfies(all -> assertThat(String.join("", all)).contains("The server shuts down"));
    pieces.assertCancelled();
  }

  @Test
  void shouldCloseTheConnectionOfASlowReaderWhenItStops() throws Exception {
    served.engine.script = request -> endless(new AtomicInteger(), new AtomicBoolean());
    try (Socket client = connect(STREAM, "")) {
      await().until(() -> client.getInputStream().available() > 0);

      served.api.stop(Duration.ofMillis(300)).block(LONG);

      assertThat(endOf(client.getInputStream())).isTrue();
    }
  }

  private static Flux<TextPiece> endless(AtomicInteger made, AtomicBoolean cancelled) {
    String text = "x".repeat(64 << 10);
    return Flux.<TextPiece>generate(
            sink -> sink.next(new TextPiece(text, 1, made.incrementAndGet(), End.NOT_YET)))
        .doOnCancel(() -> cancelled.set(true));
  }

  private void next(String text, End end) {
    pieces.next(new TextPiece(text, 1, 1, end));
  }

  private Flux<String> answer(String body) {
    return HttpClient.create()
        .post()
        .uri(served.uri("/v1/completions"))
        .send(ByteBufFlux.fromString(Mono.just(body)))
        .responseContent()
        .asString();
  }

  private Socket connect(String body, String header) throws IOException {
    Socket client = new Socket("127.0.0.1", served.api.port());
    String head = "POST /v1/completions HTTP/1.1\r\nHost: a\r\n" + header;
    String request = head + "Content-Length: " + body.length() + "\r\n\r\n" + body;
    client.getOutputStream().write(request.getBytes(StandardCharsets.US_ASCII));
    return client;
  }

  /** Whether the server closed the connection, once all is read. */
  private static boolean endOf(InputStream in) {
    try {
      in.skipNBytes(Long.MAX_VALUE);
      return false;
    } catch (IOException e) {
      return true;
    }
  }
}
