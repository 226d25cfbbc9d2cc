// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.http;

import static io.fluxccl.samples.inference.http.FakeEngine.answer;
import static org.assertj.core.api.Assertions.assertThat;

import com.fasterxml.jackson.databind.JsonNode;
import io.fluxccl.samples.inference.engine.Refused;
import io.fluxccl.samples.inference.engine.TextPiece;
import io.fluxccl.samples.inference.engine.TextPiece.End;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.net.Socket;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublisher;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;
import reactor.core.publisher.Flux;

class ErrorsTest {
  private static final String PROMPT = "{\"prompt\":\"Say\"}";
  private static final String STREAM = "{\"prompt\":\"Say\",\"stream\":true}";

  private final Served served = new Served();

  @AfterEach
  void close() {
    served.close();
  }

  @ParameterizedTest
  @CsvSource({
    "INVALID, 400, invalid_request_error",
    "BUSY, 429, rate_limit_error",
    "UNAVAILABLE, 503, server_error",
    "DEADLINE, 504, server_error",
    "FAILED, 500, server_error"
  })
  void shouldReturnTheReasonIfTheEngineRefuses(Refused.Reason reason, int status, String type) {
    served.engine.script = request -> Flux.error(FakeEngine.refused(reason));

    for (String body : List.of(PROMPT, STREAM)) {
      HttpResponse<String> response = served.post("/v1/completions", body);

      assertThat(response.statusCode()).isEqualTo(status);
      assertThat(response.headers().firstValue("Retry-After")).contains("2");
      JsonNode error = Served.json(response).path("error");
      assertThat(error.path("message").asText()).isEqualTo("It is " + reason);
      assertThat(error.path("type").asText()).isEqualTo(type);
      assertThat(error.path("code").asText()).isEqualToIgnoringCase(reason.name());
      assertThat(error.path("param").isNull()).isTrue();
    }
  }

  @ParameterizedTest
  @EnumSource
  void shouldSendAnErrorEventIfTheAnswerHasBegun(Refused.Reason reason) {
    Flux<TextPiece> begun = Flux.just(new TextPiece("Hel", 3, 1, End.NOT_YET));
    served.engine.script = request -> begun.concatWith(Flux.error(FakeEngine.refused(reason)));

    List<String> events = Served.events(served.post("/v1/completions", STREAM));

    assertThat(events).hasSize(2);
    assertThat(events.get(0)).contains("Hel");
    JsonNode error = Served.json(events.get(1)).path("error");
    assertThat(error.path("message").asText()).isEqualTo("It is " + reason);
    assertThat(error.path("code").asText()).isEqualToIgnoringCase(reason.name());
    assertThat(served.post("/v1/completions", PROMPT).statusCode()).isGreaterThanOrEqualTo(400);
  }

  @Test
  void shouldNameTheParameterThatTheEngineRefuses() {
    served.engine.script = request -> Flux.error(Refused.invalid("prompt", "It is too long"));

    String chat = "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}";
    assertThat(error("/v1/completions", PROMPT).path("param").asText()).isEqualTo("prompt");
    assertThat(error("/v1/chat/completions", chat).path("param").asText()).isEqualTo("messages");
  }

  private JsonNode error(String path, String body) {
    HttpResponse<String> response = served.post(path, body);
    assertThat(response.statusCode()).isEqualTo(400);
    return Served.json(response).path("error");
  }

  @Test
  void shouldSendNoRetryAfterIfARetryIsUseless() {
    Refused forever = new Refused(Refused.Reason.INVALID, "Too long", Duration.ZERO);
    served.engine.script = request -> Flux.error(forever);

    assertThat(served.post("/v1/completions", PROMPT).headers().map())
        .doesNotContainKey("retry-after");
  }

  @Test
  void shouldHideInternalErrors() {
    served.engine.script = request -> Flux.error(new IllegalStateException("secret"));
    HttpResponse<String> before = served.post("/v1/completions", STREAM);
    served.engine.script =
        request -> answer(End.NOT_YET, "a").concatWith(Flux.error(new Error("secret")));
    HttpResponse<String> behind = served.post("/v1/completions", STREAM);

    assertThat(before.statusCode()).isEqualTo(500);
    assertThat(before.body()).contains("The server failed").doesNotContain("secret");
    assertThat(behind.body()).contains("The server failed").doesNotContain("secret");
  }

  @ParameterizedTest
  @ValueSource(
      strings = {
        "",
        "{",
        "[]",
        "\"text\"",
        "{\"prompt\":\"\\ud8\"}",
        "nonsense",
        "{} {}",
        "{\"a\":1,\"a\":2}"
      })
  void shouldWantAJsonObject(String body) {
    HttpResponse<String> response = served.post("/v1/completions", body);

    assertThat(response.statusCode()).isEqualTo(400);
    assertThat(Served.json(response).path("error").path("code").asText()).isEqualTo("invalid_json");
  }

  @ParameterizedTest
  @CsvSource(
      delimiter = '|',
      quoteCharacter = '`',
      value = {
        "prompt        | {}",
        "prompt        | {'prompt':1}",
        "prompt        | {'prompt':[]}",
        "prompt        | {'prompt':[[]]}",
        "prompt        | {'prompt':[1,'a']}",
        "prompt        | {'prompt':[-1]}",
        "prompt        | {'prompt':[1.5]}",
        "prompt        | {'prompt':['a',{}]}",
        "max_tokens    | {'prompt':'a','max_tokens':0}",
        "max_tokens    | {'prompt':'a','max_tokens':'7'}",
        "max_tokens    | {'prompt':'a','max_tokens':1.5}",
        "max_tokens    | {'prompt':'a','max_tokens':3000000000}",
        "temperature   | {'prompt':'a','temperature':-0.1}",
        "temperature   | {'prompt':'a','temperature':2.1}",
        "temperature   | {'prompt':'a','temperature':true}",
        "top_p         | {'prompt':'a','top_p':0}",
        "top_p         | {'prompt':'a','top_p':1.1}",
        "seed          | {'prompt':'a','seed':1.5}",
        "seed          | {'prompt':'a','seed':99999999999999999999}",
        "stop          | {'prompt':'a','stop':['a','b','c','d','e']}",
        "stop          | {'prompt':'a','stop':['']}",
        "stop          | {'prompt':'a','stop':7}",
        "n             | {'prompt':'a','n':0}",
        "n             | {'prompt':'a','n':129}",
        "n             | {'prompt':['a','b'],'n':65}",
        "stream        | {'prompt':'a','stream':'yes'}",
        "include_usage | {'prompt':'a','stream':true,'stream_options':{'include_usage':1}}",
        "stream_options | {'prompt':'a','stream_options':{'include_usage':true}}",
        "stream_options | {'prompt':'a','stream':true,'stream_options':{'usage':true}}",
        "logprobs      | {'prompt':'a','logprobs':6}",
        "logprobs      | {'prompt':'a','logprobs':true}",
        "top_logprobs  | {'prompt':'a','top_logprobs':2}",
        "echo          | {'prompt':'a','echo':1}",
        "echo          | {'prompt':'a','echo':true,'logprobs':0}",
        "best_of       | {'prompt':'a','best_of':3}",
        "suffix        | {'prompt':'a','suffix':'x'}",
        "logit_bias    | {'prompt':'a','logit_bias':{'5':-101}}",
        "logit_bias    | {'prompt':'a','logit_bias':{'x':1}}",
        "logit_bias    | {'prompt':'a','logit_bias':{'5':'x'}}",
        "logit_bias    | {'prompt':'a','logit_bias':[5]}",
        "presence_penalty | {'prompt':'a','presence_penalty':2.5}",
        "frequency_penalty | {'prompt':'a','frequency_penalty':1e400}",
        "repetition_penalty | {'prompt':'a','repetition_penalty':1.5}",
        "response_format | {'prompt':'a','response_format':{'type':'json_object'}}",
        "tools         | {'prompt':'a','tools':[{'type':'function'}]}",
        "min_tokens    | {'prompt':'a','min_tokens':30}",
        "top_k         | {'prompt':'a','top_k':-2}",
        "min_p         | {'prompt':'a','min_p':1.1}",
        "stop_token_ids | {'prompt':'a','stop_token_ids':5}",
        "stop_token_ids | {'prompt':'a','stop_token_ids':['5']}",
        "ignore_eos    | {'prompt':'a','ignore_eos':'yes'}",
        "max_tokenz    | {'prompt':'a','max_tokenz':8}",
        "messages      | {'prompt':'a','messages':[]}",
        "max_completion_tokens | {'prompt':'a','max_completion_tokens':500}",
        "model         | {'prompt':'a','model':7}",
        "timeout       | {'prompt':'a','timeout':0}",
        "timeout       | {'prompt':'a','timeout':4000}"
      })
  void shouldNameTheWrongParameterOfAPrompt(String param, String body) {
    assertNamesParameter("/v1/completions", param, body);
  }

  @ParameterizedTest
  @CsvSource(
      delimiter = '|',
      quoteCharacter = '`',
      value = {
        "messages              | {}",
        "messages              | {'messages':[]}",
        "messages              | {'messages':'a'}",
        "messages              | {'messages':['a']}",
        "messages              | {'messages':[{'role':'user'}]}",
        "messages              | {'messages':[{'role':'king','content':'a'}]}",
        "messages              | {'messages':[{'role':'user','content':[{'type':'image_url'}]}]}",
        "messages              | {'messages':[{'role':'user','content':{'a':1}}]}",
        "messages              | {'messages':[{'role':'user','content':'a','name':'me'}]}",
        "prompt                | {'messages':[{'role':'user','content':'a'}],'prompt':'a'}",
        "logprobs | {'messages':[{'role':'user','content':'a'}],'logprobs':3}",
        "top_logprobs | {'messages':[{'role':'user','content':'a'}],'top_logprobs':3}",
        "top_logprobs |"
            + " {'messages':[{'role':'user','content':'a'}],'logprobs':true,'top_logprobs':21}",
        "echo | {'messages':[{'role':'user','content':'a'}],'echo':true}",
        "max_completion_tokens |"
            + " {'messages':[{'role':'user','content':'a'}],'max_completion_tokens':0}"
      })
  void shouldNameTheWrongParameterOfAChat(String param, String body) {
    assertNamesParameter("/v1/chat/completions", param, body);
  }

  private void assertNamesParameter(String path, String param, String body) {
    HttpResponse<String> response = served.post(path, body.replace('\'', '"'));

    assertThat(response.statusCode()).as(response.body()).isEqualTo(400);
    JsonNode error = Served.json(response).path("error");
    assertThat(error.path("param").asText()).isEqualTo(param);
    assertThat(error.path("type").asText()).isEqualTo("invalid_request_error");
    assertThat(served.engine.requests).isEmpty();
  }

  @Test
  void shouldRefuseATimeoutThatIsNone() {
    assertThat(served.post("/v1/completions", PROMPT, "X-Request-Timeout-Ms", "soon").statusCode())
        .isEqualTo(400);
  }

  @Test
  void shouldNotKnowAnotherModel() {
    HttpResponse<String> asked =
        served.post("/v1/completions", "{\"prompt\":\"a\",\"model\":\"gpt-4\"}");
    HttpResponse<String> read = served.get("/v1/models/gpt-4");

    for (HttpResponse<String> response : List.of(asked, read)) {
      assertThat(response.statusCode()).isEqualTo(404);
      assertThat(Served.json(response).path("error").path("code").asText())
          .isEqualTo("model_not_found");
    }
  }

  @ParameterizedTest
  @ValueSource(booleans = {true, false})
  void shouldRefuseALargeBody(boolean chunked) {
    byte[] large = new byte[(1 << 20) + 1];
    BodyPublisher body =
        chunked
            ? BodyPublishers.ofInputStream(() -> new ByteArrayInputStream(large))
            : BodyPublishers.ofByteArray(large);

    HttpResponse<String> response =
        served.send(HttpRequest.newBuilder(served.uri("/v1/completions")).POST(body));

    assertThat(response.statusCode()).isEqualTo(413);
    assertThat(Served.json(response).path("error").path("code").asText()).isEqualTo("too_large");
    assertThat(served.get("/health/live").statusCode()).isEqualTo(200);
  }

  @Test
  void shouldTakeABodyOfTheLimit() {
    String prompt = "a".repeat((1 << 20) - PROMPT.length() + "Say".length());

    assertThat(served.post("/v1/completions", PROMPT.replace("Say", prompt)).statusCode())
        .isEqualTo(200);
  }

  @Test
  void shouldBearAPathThatIsNone() throws IOException {
    try (Socket client = new Socket("127.0.0.1", served.api.port())) {
      String request = "GET /v1/models/%zz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
      client.getOutputStream().write(request.getBytes(StandardCharsets.US_ASCII));

      assertThat(new String(client.getInputStream().readAllBytes(), StandardCharsets.US_ASCII))
          .startsWith("HTTP/1.1 404");
    }
  }

  @Test
  void shouldReportUnknownPathsAndMethods() {
    HttpResponse<String> missing = served.get("/v2");
    HttpResponse<String> method = served.get("/v1/completions");

    assertThat(missing.statusCode()).isEqualTo(404);
    assertThat(Served.json(missing).path("error").path("code").asText()).isEqualTo("not_found");
    assertThat(method.statusCode()).isEqualTo(405);
    assertThat(method.headers().firstValue("Allow")).contains("POST");
    assertThat(Served.json(method).path("error").path("code").asText())
        .isEqualTo("method_not_allowed");
  }
}
