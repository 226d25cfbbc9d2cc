// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.http;

import static io.fluxccl.samples.inference.http.FakeEngine.answer;
import static org.assertj.core.api.Assertions.assertThat;

import com.fasterxml.jackson.databind.JsonNode;
import io.fluxccl.samples.inference.engine.TextPiece.End;
import io.fluxccl.samples.inference.engine.TextRequest;
import io.fluxccl.samples.inference.engine.TextRequest.Sampling;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

class AnswersTest {
  private final Served served = new Served();

  @AfterEach
  void close() {
    served.close();
  }

  @Test
  void shouldAnswerARequestAfterTwoPipelinedOnes() throws IOException {
    String body = "{\"prompt\":\"Say\"}";
    String head = " HTTP/1.1\r\nHost: x\r\n";
    try (Socket socket = new Socket("127.0.0.1", served.api.port())) {
      socket.setSoTimeout(10_000);
      OutputStream out = socket.getOutputStream();
      String post = "POST /v1/completions" + head + "Content-Type: application/json\r\n";
      String both = post + "Content-Length: 16\r\n\r\n" + body + "GET /v1/models" + head + "\r\n";
      out.write(both.getBytes(StandardCharsets.US_ASCII));
      InputStream in = socket.getInputStream();
      readUntil(in, "owned_by");
      out.write(("GET /health/live" + head + "\r\n").getBytes(StandardCharsets.US_ASCII));
      readUntil(in, "200 OK");
    }
  }

  private static void readUntil(InputStream in, String text) throws IOException {
    StringBuilder read = new StringBuilder();
    while (read.indexOf(text) < 0) {
      int next = in.read();
      assertThat(next).as("the end of the answers behind: %s", read).isNotNegative();
      read.append((char) next);
    }
  }

  @Test
  void shouldAcceptParametersThatAskForNothing() {
    String defaults =
        "\"echo\":false,\"best_of\":1,\"logit_bias\":{},\"presence_penalty\":0.0,\"top_k\":-1,"
            + "\"response_format\":{\"type\":\"text\"},\"tools\":[],\"logprobs\":null,\"user\":\"me\"";
    assertThat(served.post("/v1/completions", "{\"prompt\":\"a\"," + defaults + "}").statusCode())
        .isEqualTo(200);
  }

  @Test
  void shouldBeGreedyAtATemperatureThatIsNearlyZero() {
    served.post("/v1/completions", "{\"prompt\":\"a\",\"temperature\":1e-40}");
    assertThat(served.engine.requests.element().sampling().temperature()).isZero();
  }

  @Test
  void shouldAnswerAPrompt() {
    JsonNode answer = Served.json(served.post("/v1/completions", "{\"prompt\":\"Say\"}"));

    assertThat(answer.path("id").asText()).startsWith("cmpl-");
    assertThat(answer.path("object").asText()).isEqualTo("text_completion");
    assertThat(answer.path("model").asText()).isEqualTo(FakeEngine.MODEL);
    assertThat(answer.path("created").asLong()).isPositive();
    assertThat(answer.path("choices"))
        .isEqualTo(
            Served.json(
                "[{\"index\":0,\"logprobs\":null,\"finish_reason\":\"stop\","
                    + "\"text\":\"Hello, wörld\"}]"));
    assertThat(answer.path("usage"))
        .isEqualTo(Served.json("{\"prompt_tokens\":3,\"completion_tokens\":4,\"total_tokens\":7}"));
  }

  @Test
  void shouldAnswerAChat() {
    served.engine.script = request -> answer(End.LENGTH, "Hi", "!");

    JsonNode answer =
        Served.json(
            served.post(
                "/v1/chat/completions",
                "{\"messages\":[{\"role\":\"user\",\"content\":\"Say\"}]}"));

    assertThat(answer.path("id").asText()).startsWith("chatcmpl-");
    assertThat(answer.path("object").asText()).isEqualTo("chat.completion");
    assertThat(answer.path("choices"))
        .isEqualTo(
            Served.json(
                "[{\"index\":0,\"logprobs\":null,\"finish_reason\":\"length\",\"message\":"
                    + "{\"role\":\"assistant\",\"content\":\"Hi!\",\"refusal\":null}}]"));
    assertThat(answer.path("usage").path("total_tokens").asInt()).isEqualTo(5);
  }

  @Test
  void shouldStreamAnAnswerToAPrompt() {
    List<String> events =
        Served.events(served.post("/v1/completions", "{\"prompt\":\"Say\",\"stream\":true}"));

    assertThat(events).hasSize(5).last().isEqualTo("[DONE]");
    List<JsonNode> chunks = events.subList(0, 4).stream().map(Served::json).toList();
    assertThat(chunks)
        .extracting(chunk -> chunk.path("choices").path(0).path("text").asText())
        .containsExactly("Hello", ",", " wörld", "");
    assertThat(chunks)
        .extracting(chunk -> chunk.path("choices").path(0).path("finish_reason").asText())
        .containsExactly("null", "null", "null", "stop");
    assertThat(chunks).extracting(chunk -> chunk.path("id").asText()).containsOnly(id(chunks));
    assertThat(chunks).noneMatch(chunk -> chunk.has("usage"));
  }

  @Test
  void shouldStreamAnAnswerToAChatWithUsage() {
    List<String> events =
        Served.events(
            served.post(
                "/v1/chat/completions",
                "{\"messages\":[{\"role\":\"user\",\"content\":\"Say\"}],\"stream\":true,"
                    + "\"stream_options\":{\"include_usage\":true}}"));

    assertThat(events).hasSize(7).last().isEqualTo("[DONE]");
    List<JsonNode> chunks = events.subList(0, 6).stream().map(Served::json).toList();
    assertThat(chunks)
        .extracting(c -> c.path("object").asText())
        .containsOnly("chat.completion.chunk");
    assertThat(chunks.subList(0, 5))
        .extracting(chunk -> chunk.path("choices").path(0).path("delta").toString())
        .containsExactly(
            "{\"role\":\"assistant\",\"content\":\"\"}",
            "{\"content\":\"Hello\"}",
            "{\"content\":\",\"}",
            "{\"content\":\" wörld\"}",
            "{}");
    assertThat(chunks.subList(0, 5)).allMatch(chunk -> chunk.path("usage").isNull());
    assertThat(chunks.get(4).path("choices").path(0).path("finish_reason").asText())
        .isEqualTo("stop");
    assertThat(chunks.get(5).path("choices")).isEmpty();
    assertThat(chunks.get(5).path("usage").path("completion_tokens").asInt()).isEqualTo(4);
  }

  @Test
  void shouldAskTheEngineAsTheClientDoes() {
    served.post(
        "/v1/completions",
        "{\"model\":\"tiny/llama\",\"prompt\":[\"One\"],\"max_tokens\":7,\"temperature\":0.5,"
            + "\"top_p\":0.25,\"seed\":42,\"stop\":[\"a\",\"b\"],\"n\":1,\"timeout\":2.5,"
            + "\"user\":\"u\",\"of another time\":null}");
    served.post(
        "/v1/chat/completions",
        "{\"messages\":[{\"role\":\"developer\",\"content\":\"Be brief\"},{\"role\":\"user\","
            + "\"content\":[{\"type\":\"text\",\"text\":\"T\"},{\"type\":\"text\",\"text\":\"wo\"}]}],"
            + "\"max_tokens\":5,\"max_completion_tokens\":6,\"seed\":1,\"stop\":\"c\",\"top_p\":null}",
        "X-Request-Timeout-Ms",
        "700");

    assertThat(served.engine.requests)
        .containsExactly(
            new TextRequest(
                "One",
                7,
                new Sampling(0.5f, 0.25f, 42),
                List.of("a", "b"),
                Duration.ofMillis(2500)),
            new TextRequest(
                "Be brief\nTwo", 6, new Sampling(1, 1, 1), List.of("c"), Duration.ofMillis(700)));
  }

  @Test
  void shouldAskWithDefaults() {
    served.post("/v1/completions", "{\"prompt\":\"\"}");
    served.post("/v1/completions", "{\"prompt\":\"\",\"stop\":null,\"max_tokens\":null}");

    assertThat(served.engine.requests)
        .hasSize(2)
        .allSatisfy(
            asked -> {
              assertThat(asked.maxTokens()).isEqualTo(16);
              assertThat(asked.stop()).isEmpty();
              assertThat(asked.deadline()).isEqualTo(Duration.ofSeconds(120));
              assertThat(asked.sampling().temperature()).isEqualTo(1);
            });
    assertThat(served.engine.requests).extracting(r -> r.sampling().seed()).doesNotHaveDuplicates();
  }

  private static String id(List<JsonNode> chunks) {
    return chunks.get(0).path("id").asText();
  }
}
