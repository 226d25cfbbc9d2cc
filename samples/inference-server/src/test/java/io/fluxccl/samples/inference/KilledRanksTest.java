// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference;

import static java.util.concurrent.TimeUnit.SECONDS;
import static org.assertj.core.api.Assertions.assertThat;
import static org.awaitility.Awaitility.await;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.net.BindException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ThreadLocalRandom;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import reactor.core.publisher.Mono;
import reactor.netty.http.client.HttpClient;

/** The server as processes, a rank each, that are killed while they answer. */
@Timeout(900)
class KilledRanksTest {
  private static final Duration LONG = Duration.ofSeconds(180);
  private static final ObjectMapper JSON = new ObjectMapper();

  /** Each JVM runs for seconds, in which the second compiler costs more than it saves. */
  private static final String ONE_COMPILER = "-XX:TieredStopAtLevel=1";

  private static final String PROMPT = "In the beginning God created";

  @TempDir private Path folder;
  private Process launcher;
  private HttpClient client;

  @BeforeEach
  void start() throws IOException {
    int port = freePort();
    client = HttpClient.create().baseUrl("http://127.0.0.1:" + port);
    String java = ProcessHandle.current().info().command().orElseThrow();
    String classPath = System.getProperty("java.class.path");
    ProcessBuilder builder =
        new ProcessBuilder(
            List.of(
                java,
                ONE_COMPILER,
                "-cp",
                classPath,
                "io.fluxccl.cli.Main",
                "launch",
                "-n",
                "2",
                "--restart",
                "10",
                "--grace",
                "40",
                "--",
                java,
                ONE_COMPILER,
                "-cp",
                classPath,
                InferenceServer.class.getName(),
                "--model",
                "model",
                "--port",
                String.valueOf(port)));
    builder.environment().put("FLUXCCL_DEVICE", "host");
    builder.redirectErrorStream(true).redirectOutput(folder.resolve("log").toFile());
    launcher = builder.start();
    awaitReady();
  }

  /** Returns a port that the system gives to no socket by itself, so that it stays free. */
  private static int freePort() throws IOException {
    while (true) {
      int port = ThreadLocalRandom.current().nextInt(30_000, 32_000);
      try (ServerSocket probe = new ServerSocket(port, 1, InetAddress.getLoopbackAddress())) {
        return probe.getLocalPort();
      } catch (BindException taken) {
        continue;
      }
    }
  }

  @AfterEach
  void stop() throws InterruptedException {
    launcher.destroy();
    assertThat(launcher.waitFor(LONG.toSeconds(), SECONDS)).isTrue();
    assertThat(launcher.descendants()).isEmpty();
  }

  private void awaitReady() {
    await()
        .atMost(LONG)
        .pollInterval(Duration.ofMillis(20))
        .until(() -> status("/health/ready").onErrorReturn(0).block(LONG) == 200);
  }

  private Mono<Integer> status(String path) {
    return client
        .get()
        .uri(path)
        .responseSingle((response, body) -> Mono.just(response.status().code()));
  }

  /**
   * Asks for a stream of events.
   *
   * @param begun completes with the first one
   * @return the texts of all
   */
  private CompletableFuture<List<String>> stream(int maxTokens, CompletableFuture<Void> begun) {
    String body =
        String.format(
            "{\"model\": \"model\", \"prompt\": \"%s\", \"max_tokens\": %d, \"temperature\": 0,"
                + " \"stream\": true}",
            PROMPT, maxTokens);
    return client
        .headers(headers -> headers.set("Content-Type", "application/json"))
        .post()
        .uri("/v1/completions")
        .send((request, out) -> out.sendString(Mono.just(body)))
        .responseContent()
        .asString(StandardCharsets.UTF_8)
        .doOnNext(part -> begun.complete(null))
        .collect(Collectors.joining())
        .map(KilledRanksTest::texts)
        .toFuture();
  }

  private static List<String> texts(String events) {
    assertThat(events).endsWith("data: [DONE]\n\n");
    return events
        .lines()
        .filter(line -> line.startsWith("data: {"))
        .map(KilledRanksTest::text)
        .toList();
  }

  private static String text(String event) {
    try {
      JsonNode json = JSON.readTree(event.substring("data: ".length()));
      assertThat(json.has("error")).as(event).isFalse();
      return json.get("choices").get(0).get("text").asText();
    } catch (IOException e) {
      throw new IllegalStateException(event, e);
    }
  }

  /** Returns the process of a rank: the launcher's child with FLUXCCL_RANK of this rank. */
  private ProcessHandle rank(int rank) {
    return launcher
        .children()
        .filter(process -> environment(process).contains("FLUXCCL_RANK=" + rank + "\0"))
        .findFirst()
        .orElseThrow();
  }

  private static String environment(ProcessHandle process) {
    try {
      Path file = Path.of("/proc", String.valueOf(process.pid()), "environ");
      return Files.readString(file, StandardCharsets.ISO_8859_1);
    } catch (IOException e) {
      return "";
    }
  }

  @Test
  void shouldContinueAnAnswerIfAnotherRankIsKilled() throws IOException {
    List<String> alone =
        stream(300, new CompletableFuture<>()).orTimeout(LONG.toSeconds(), SECONDS).join();
    for (int round = 0; round < 2; round++) {
      CompletableFuture<Void> begun = new CompletableFuture<>();
      CompletableFuture<List<String>> answer = stream(300, begun);
      begun.orTimeout(LONG.toSeconds(), SECONDS).join();
      rank(1).destroyForcibly();
      assertThat(answer).succeedsWithin(LONG).isEqualTo(alone);
      awaitReady();
    }
    // Rank 0 loads the model once. A slow machine may need more than the two next generations.
    await().atMost(LONG).until(() -> lines("rank 0 has kept its weights") >= 2);
    assertThat(lines("rank 0 has loaded its weights")).isLessThanOrEqualTo(1);
  }

  private long lines(String text) throws IOException {
    try (Stream<String> log = Files.lines(folder.resolve("log"))) {
      return log.filter(line -> line.contains(text)).count();
    }
  }

  @Test
  void shouldServeAgainWhenTheRankWithTheRequestsIsKilled() {
    CompletableFuture<Void> begun = new CompletableFuture<>();
    CompletableFuture<List<String>> answer = stream(400, begun);
    begun.orTimeout(LONG.toSeconds(), SECONDS).join();
    rank(0).destroyForcibly();
    assertThat(answer).failsWithin(LONG); // the connection ends early, and the client knows
    awaitReady();
    assertThat(stream(10, begun).orTimeout(LONG.toSeconds(), SECONDS).join()).isNotEmpty();
  }

  @Test
  void shouldFinishRunningAnswersIfTerminated() throws InterruptedException {
    CompletableFuture<Void> begun = new CompletableFuture<>();
    CompletableFuture<List<String>> answer = stream(200, begun);
    begun.orTimeout(LONG.toSeconds(), SECONDS).join();
    launcher.destroy();
    assertThat(answer.orTimeout(LONG.toSeconds(), SECONDS).join()).hasSizeGreaterThanOrEqualTo(200);
    assertThat(launcher.waitFor(LONG.toSeconds(), SECONDS)).isTrue();
  }
}
