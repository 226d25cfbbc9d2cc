// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.http;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.samples.inference.engine.Refused;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.time.Duration;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import reactor.core.publisher.Flux;

class HealthTest {
  private static final Duration LONG = Duration.ofSeconds(60);

  private final Served served = new Served();

  @AfterEach
  void close() {
    served.close();
  }

  @Test
  void shouldBeReadyWhenTheEngineIs() {
    assertThat(served.get("/health/live").statusCode()).isEqualTo(200);
    assertThat(served.get("/health/ready").statusCode()).isEqualTo(200);

    served.engine.status = () -> FakeEngine.status(false, "missing");
    HttpResponse<String> without = served.get("/health/ready");
    assertThat(without.statusCode()).isEqualTo(503);
    assertThat(Served.json(without).path("reason").asText()).isEqualTo("rank 1 is missing");

    served.engine.status = () -> FakeEngine.status(false, "serving");
    assertThat(served.get("/health/ready").body()).contains("the ranks have not met");
    assertThat(served.get("/health/live").statusCode()).isEqualTo(200);
  }

  @Test
  void shouldNameTheLastFailureWhileItIsNotReady() {
    served.engine.status = () -> FakeEngine.failed("rank 1: no memory");
    assertThat(Served.json(served.get("/health/ready")).path("reason").asText())
        .isEqualTo("rank 1 is missing; the last generation failed: rank 1: no memory");
    assertThat(Served.json(served.get("/status")).path("lastFailure").asText())
        .isEqualTo("rank 1: no memory");
    assertThat(Served.json(served.get("/status")).path("restarts").asInt()).isEqualTo(5);
  }

  @Test
  void shouldListTheModel() {
    assertThat(Served.json(served.get("/v1/models")).path("data").path(0).path("id").asText())
        .isEqualTo(FakeEngine.MODEL);
    for (String id : new String[] {"tiny/llama", "tiny%2Fllama"}) {
      assertThat(Served.json(served.get("/v1/models/" + id)).path("object").asText())
          .isEqualTo("model");
    }
  }

  @Test
  void shouldServeThePageAndItsStatus() {
    assertThat(served.get("/?prompt=a").body()).startsWith("<!doctype html>");
    assertThat(Served.json(served.get("/status")).path("ranks").path(3).path("device").asText())
        .isEqualTo("NVIDIA H200 (GPU 3)");
    HttpResponse<String> head =
        served.send(
            HttpRequest.newBuilder(served.uri("/health/ready"))
                .method("HEAD", BodyPublishers.noBody()));
    assertThat(head.statusCode()).isEqualTo(200);
    assertThat(head.body()).isEmpty();
  }

  @Test
  void shouldServeMetrics() {
    served.post("/v1/completions", "{\"prompt\":\"a\"}");
    served.engine.script = request -> Flux.error(FakeEngine.refused(Refused.Reason.BUSY));
    served.post("/v1/completions", "{\"prompt\":\"a\"}");
    served.get("/of/a/scanner");

    HttpResponse<String> metrics = served.get("/metrics");

    assertThat(metrics.headers().firstValue("Content-Type").orElseThrow()).startsWith("text/plain");
    assertThat(metrics.body().lines())
        .contains(
            "inference_requests_total{path=\"/v1/completions\",status=\"200\"} 1.0",
            "inference_requests_total{path=\"/v1/completions\",status=\"429\"} 1.0",
            "inference_requests_total{path=\"other\",status=\"404\"} 1.0",
            "inference_answers_total{end=\"stop\"} 1.0",
            "inference_answers_total{end=\"error\"} 1.0",
            "inference_first_token_seconds_count 1",
            "inference_next_token_seconds_count 3",
            "inference_first_token_seconds_bucket{le=\"60.0\"} 1",
            "inference_tokens_total 4567.0",
            "inference_steps_total 123.0",
            "inference_step_seconds 0.00325",
            "inference_communication_share 0.18",
            "inference_running 7.0",
            "inference_waiting 3.0",
            "inference_kv_pages_used 384.0",
            "inference_kv_pages 1024.0",
            "inference_generation 2.0",
            "inference_ranks 4.0",
            "inference_ranks_serving 4.0",
            "inference_ranks_silent 0.0",
            "inference_ranks_missing 0.0");
    assertThat(metrics.body()).contains("jvm_memory_used_bytes{area=\"heap\"", "jvm_gc_");
  }

  @Test
  void shouldCountSilentAndMissingRanksInMetrics() {
    served.engine.status = () -> FakeEngine.status(true, "silent");
    assertThat(served.get("/metrics").body().lines())
        .contains("inference_ranks_silent 1.0", "inference_ranks_serving 3.0");
    served.engine.status = () -> FakeEngine.status(false, "missing");
    assertThat(served.get("/metrics").body().lines())
        .contains("inference_ranks_silent 0.0", "inference_ranks_missing 1.0");
  }

  @Test
  void shouldRefuseToBlockAnEventLoop() {
    served.engine.status =
        () -> {
          try {
            Thread.sleep(1);
          } catch (InterruptedException e) {
            throw new AssertionError(e);
          }
          return FakeEngine.status(true, "serving");
        };

    assertThat(served.get("/status").statusCode()).isEqualTo(500);
    assertThat(BlockedThreads.CALLS)
        .hasSize(1)
        .first()
        .asString()
        .contains("sleep", "on reactor-http");
    BlockedThreads.CALLS.clear();
  }

  @Test
  void shouldStopInOrder() throws Exception {
    HttpApi api = served.api;
    var stopped = api.stop(LONG).toFuture();
    Awaitility.await().until(() -> served.engine.draining);

    HttpResponse<String> ready = served.get("/health/ready");
    assertThat(ready.statusCode()).isEqualTo(503);
    assertThat(ready.body()).contains("shutting down");
    assertThat(ready.headers().firstValue("Connection")).contains("close");
    assertThat(served.post("/v1/completions", "{\"prompt\":\"a\"}").statusCode()).isEqualTo(503);
    assertThat(stopped).isNotDone();

    served.engine.drained.tryEmitEmpty();
    assertThat(stopped).succeedsWithin(LONG);
  }
}
