// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.http;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.assertj.core.api.Assertions.assertThat;
import static org.awaitility.Awaitility.await;

import ch.qos.logback.classic.Logger;
import ch.qos.logback.classic.spi.ILoggingEvent;
import ch.qos.logback.core.read.ListAppender;
import com.fasterxml.jackson.databind.JsonNode;
import io.fluxccl.samples.inference.engine.TextPiece.End;
import java.io.IOException;
import java.io.InputStream;
import java.net.Socket;
import java.net.SocketException;
import java.net.SocketTimeoutException;
import java.net.URLEncoder;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;
import org.slf4j.LoggerFactory;
import reactor.core.publisher.Mono;

/** Connections as clients, proxies and load balancers use them, and their limits. */
class ConnectionsTest {
  private static final Duration LONG = Duration.ofSeconds(60);
  private static final Duration SHORT = Duration.ofMillis(300);
  private static final String PROMPT = "{\"prompt\":\"Say\"}";
  private static final String STREAM = "{\"prompt\":\"Say\",\"stream\":true}";
  private static final int CLOSED = -1;
  private static final int NOTHING = -2;
  private static final String HOST = "Host: x\r\n";

  private final ListAppender<ILoggingEvent> log = new ListAppender<>();
  private final Logger root = (Logger) LoggerFactory.getLogger(Logger.ROOT_LOGGER_NAME);
  private final List<Socket> clients = new ArrayList<>();
  private Served served = new Served();

  ConnectionsTest() {
    log.start();
    root.addAppender(log);
  }

  @AfterEach
  void close() throws IOException {
    root.detachAppender(log);
    for (Socket client : clients) {
      client.close();
    }
    served.close();
  }

  private void serve(int connections, Duration head, Duration idle, Duration body) {
    served.close();
    served = new Served(Served.limits(connections, head, idle, body));
  }

  private Socket connect(String sent) throws IOException {
    Socket client = new Socket("127.0.0.1", served.api.port());
    clients.add(client);
    client.setSoTimeout(20_000);
    client.getOutputStream().write(sent.getBytes(UTF_8));
    return client;
  }

  /** Returns all that the server sends until it closes the connection. */
  private static String all(Socket client) throws IOException {
    return new String(client.getInputStream().readAllBytes(), UTF_8);
  }

  private static String post(String version, String headers, String body) {
    String head = "POST /v1/completions HTTP/" + version + "\r\n" + headers;
    return head + "Content-Length: " + body.length() + "\r\n\r\n" + body;
  }

  private static String get(String target, String headers) {
    return "GET " + target + " HTTP/1.1\r\n" + headers + "Connection: close\r\n\r\n";
  }

  @Test
  void shouldAnswerHttp10() throws IOException {
    assertThat(all(connect(post("1.0", "", PROMPT)))).contains(" 200 OK").contains("Hello, wörld");
    String answer = all(connect(post("1.0", "", STREAM)));
    assertThat(answer.toLowerCase()).doesNotContain("transfer-encoding");
    assertThat(answer.split("\r\n\r\n", 2)[1])
        .startsWith("data: {")
        .endsWith("}\n\ndata: [DONE]\n\n");
  }

  @ParameterizedTest
  @ValueSource(
      strings = {"http://x/v1/models", "HTTP://x:80/v1/models?a=b", "/v1/models?a=http://b"})
  void shouldAnswerAbsoluteTargets(String target) throws IOException {
    assertThat(all(connect(get(target, HOST)))).contains(" 200 OK").contains("owned_by");
  }

  @ParameterizedTest
  @ValueSource(strings = {"", "Host: a\r\nHost: b\r\n"})
  void shouldWantOneHost(String headers) throws IOException {
    assertThat(all(connect(get("/v1/models", headers)))).contains(" 400 ").contains("'Host'");
    assertThat(served.get("/v1/models").statusCode()).isEqualTo(200);
  }

  @ParameterizedTest
  @ValueSource(strings = {"Große Modelle/ü 1+2", "100%", "模型", "a?b#c"})
  void shouldFindAModelByAnyName(String name) throws IOException {
    served.engine.model = name;
    String path = "/v1/models/" + URLEncoder.encode(name, UTF_8).replace("+", "%20");
    JsonNode model = Served.json(served.get(path));
    assertThat(model.path("id").asText()).isEqualTo(name);
    assertThat(Served.json(served.get("/v1/models")).at("/data/0")).isEqualTo(model);
    String body = "{\"prompt\":\"a\",\"model\":\"" + name + "\"}";
    JsonNode answer = Served.json(served.post("/v1/completions", body));
    assertThat(answer.path("model").asText()).isEqualTo(name);
  }

  @Test
  void shouldFindAModelByANameThatIsNotEncoded() throws IOException {
    served.engine.model = "Größe%";
    assertThat(all(connect(get("/v1/models/Größe%", HOST)))).contains(" 200 OK");
  }

  @ParameterizedTest
  @CsvSource({"0, false", "350, false", "350, true"})
  void shouldAnswerAClientThatClosedItsHalf(int millis, boolean stream) throws IOException {
    var script = served.engine.script;
    served.engine.script =
        asked -> Mono.delay(Duration.ofMillis(millis)).thenMany(script.apply(asked));
    Socket client = connect(post("1.1", HOST, stream ? STREAM : PROMPT));
    client.shutdownOutput();
    assertThat(all(client))
        .contains("HTTP/1.1 200 OK")
        .contains(stream ? "[DONE]" : "Hello, wörld");
  }

  @Test
  void shouldSendEventsToAClientThatClosedItsHalf() throws IOException {
    var first = FakeEngine.answer(End.NOT_YET, "a");
    var later = Mono.delay(Duration.ofMillis(350)).thenMany(FakeEngine.answer(End.STOP, "b"));
    served.engine.script = asked -> first.concatWith(later);
    Socket client = connect(post("1.1", HOST, STREAM));
    client.shutdownOutput();
    assertThat(all(client)).containsSubsequence("\"a\"", "\n:\n\n", "\"b\"", "[DONE]");
  }

  @Test
  void shouldAnswerPipelinedRequestsOfAClientThatClosedItsHalf() throws IOException {
    String models = "GET /v1/models HTTP/1.1\r\n" + HOST + "\r\n";
    Socket client = connect(models + post("1.1", HOST, PROMPT) + models);
    client.shutdownOutput();
    assertThat(all(client).split("HTTP/1.1 200 OK")).hasSize(4);
  }

  @Test
  void shouldCloseAConnectionWithASlowHead() throws IOException {
    serve(10, SHORT, SHORT, LONG);
    assertThat(dripUntilClosed(connect("GET / HTTP/1.1\r\nA: "))).isEmpty();
    Socket silent = connect("");
    assertThat(all(silent)).isEmpty();
    serve(10, LONG, SHORT, LONG);
    Socket kept = connect("GET /v1/models HTTP/1.1\r\n" + HOST + "\r\nGET / HTTP/1.1\r\nA: ");
    assertThat(dripUntilClosed(kept)).contains(" 200 OK");
  }

  /** Sends a byte every 50 ms; returns what the server sends until it closes the connection. */
  private static String dripUntilClosed(Socket client) throws IOException {
    client.setSoTimeout(50);
    StringBuilder read = new StringBuilder();
    InputStream in = client.getInputStream();
    for (long begun = System.nanoTime(); System.nanoTime() - begun < LONG.toNanos(); ) {
      try {
        int next = next(client, in);
        if (next == CLOSED) {
          return read.toString();
        }
        read.append(next == NOTHING ? "" : Character.toString(next));
      } catch (IOException e) {
        return read.toString(); // reset: bytes that the server did not read
      }
    }
    throw new AssertionError("The connection is still open");
  }

  private static int next(Socket client, InputStream in) throws IOException {
    try {
      return in.read();
    } catch (SocketTimeoutException e) {
      write(client);
      return NOTHING;
    }
  }

  private static void write(Socket client) {
    try {
      client.getOutputStream().write('a');
    } catch (IOException e) {
      // The server has closed the connection; its answer can still be read.
    }
  }

  @Test
  void shouldReportASlowBodyWithoutAStackTrace() throws IOException {
    serve(10, LONG, LONG, SHORT);
    String head = "POST /v1/completions HTTP/1.1\r\n" + HOST + "Content-Length: 900\r\n\r\n";
    assertThat(dripUntilClosed(connect(head))).contains(" 408 ").contains("\"timeout\"");
    assertThat(served.engine.requests).isEmpty();
    serve(10, LONG, LONG, LONG);
    connect(head + "{").close();
    Socket half = connect(head + "{");
    half.shutdownOutput();
    assertThat(all(half)).doesNotContain("200");
    await().until(() -> served.get("/metrics").body().contains("status=\"cancelled\"} 2.0"));
    assertThat(served.engine.requests).isEmpty();
    assertThat(log.list).allMatch(event -> event.getThrowableProxy() == null);
  }

  @Test
  void shouldRefuseConnectionsBeyondTheLimit() throws IOException {
    serve(16, LONG, LONG, LONG);
    for (int i = 0; i < 16; i++) {
      all(connect(get("/health/live", HOST))); // the connections before do not count
    }
    for (int i = 0; i < 16; i++) {
      Socket kept = connect("GET /health/live HTTP/1.1\r\n" + HOST + "\r\n");
      assertThat(kept.getInputStream().read()).isEqualTo('H'); // it is served, and stays open
    }
    String answer = all(connect(get("/health/live", HOST)));
    assertThat(answer).startsWith("HTTP/1.1 503 ").contains("\"unavailable\"", "retry-after: 1");
    List<Socket> more = new ArrayList<>();
    for (int i = 0; i < 200; i++) {
      more.add(connect(""));
    }
    for (Socket each : more) {
      assertThat(dripUntilClosed(each)).doesNotContain(" 200 ");
    }
    clients.get(20).close();
    await()
        .ignoreExceptionsInstanceOf(SocketException.class) // closed at once: far too many
        .until(() -> all(connect(get("/health/live", HOST))).contains(" 200 OK"));
  }

  @ParameterizedTest
  @CsvSource({"431, /, 20000", "414, /aaaa, 20000"})
  void shouldRefuseALongHead(int status, String target, int length) throws IOException {
    String more = "a".repeat(length);
    String request =
        status == 431 ? get(target, HOST + "A: " + more + "\r\n") : get(target + more, HOST);
    assertThat(dripUntilClosed(connect(request))).contains(" " + status + " ");
  }
}
