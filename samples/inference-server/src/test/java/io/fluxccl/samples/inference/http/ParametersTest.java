// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.http;

import static io.fluxccl.samples.inference.http.FakeEngine.answer;
import static org.assertj.core.api.Assertions.assertThat;

import com.fasterxml.jackson.databind.JsonNode;
import io.fluxccl.samples.inference.engine.TextPiece;
import io.fluxccl.samples.inference.engine.TextPiece.End;
import io.fluxccl.samples.inference.engine.TextPiece.Logprob;
import io.fluxccl.samples.inference.engine.TextRequest;
import io.fluxccl.samples.inference.engine.TextRequest.Adjustments;
import io.fluxccl.samples.inference.engine.TextRequest.Options;
import io.fluxccl.samples.inference.engine.TextRequest.Sampling;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.IntStream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import reactor.core.publisher.Flux;

/** Parameters beyond those of a single plain answer. */
class ParametersTest {
  private static final String CHAT = "\"messages\":[{\"role\":\"user\",\"content\":\"Say\"}]";

  private final Served served = new Served();

  @AfterEach
  void close() {
    served.close();
  }

  private JsonNode complete(String parameters) {
    return Served.json(served.post("/v1/completions", ("{" + parameters + "}").replace('\'', '"')));
  }

  private TextRequest asked(String parameters) {
    assertThat(complete(parameters).has("choices")).as(parameters).isTrue();
    return served.engine.requests.remove();
  }

  @Test
  void shouldAskTheEngineForAllParameters() {
    TextRequest asked =
        asked(
            "'prompt':[5,7],'max_tokens':9,'presence_penalty':-2,'frequency_penalty':0.5,"
                + "'logit_bias':{'3':-100,'12':1.5},'top_k':40,'min_p':0.25,'seed':6,"
                + "'stop_token_ids':[8,9],'ignore_eos':true,'min_tokens':9,'logprobs':5");
    Adjustments adjustments = new Adjustments(40, 0.25f, -2, 0.5f, Map.of(3, -100f, 12, 1.5f));
    assertThat(asked.sampling()).isEqualTo(new Sampling(1, 1, 6, adjustments));
    assertThat(asked.options())
        .isEqualTo(new Options(List.of(5, 7), false, 5, Set.of(8, 9), true, 9));
    served.post(
        "/v1/chat/completions",
        "{" + CHAT + ",\"logprobs\":true,\"top_logprobs\":20,\"top_k\":-1}");
    TextRequest chat = served.engine.requests.remove();
    assertThat(chat.options()).isEqualTo(new Options(List.of(), false, 20, Set.of(), false, 0));
    assertThat(chat.sampling().adjustments()).isEqualTo(Adjustments.NONE);
  }

  @Test
  void shouldAskForNothingByDefaults() {
    TextRequest asked =
        asked(
            "'prompt':'a','presence_penalty':0,'frequency_penalty':0.0,'logit_bias':{},'top_k':0,"
                + "'min_p':0,'stop_token_ids':[],'ignore_eos':false,'min_tokens':0,'echo':false,"
                + "'logprobs':false,'n':1");
    assertThat(asked.options()).isEqualTo(Options.NONE);
    assertThat(asked.sampling().adjustments()).isEqualTo(Adjustments.NONE);
  }

  @Test
  void shouldTakeNumbersAtTheirLimits() {
    assertThat(asked("'prompt':'a','temperature':1e-40,'top_p':1e-300").sampling())
        .matches(sampling -> sampling.temperature() == 0 && sampling.topP() > 0);
    assertThat(asked("'prompt':'a','temperature':2,'min_p':1").sampling().temperature())
        .isEqualTo(2);
    assertThat(asked("'prompt':'a','seed':-9223372036854775808").sampling().seed())
        .isEqualTo(Long.MIN_VALUE);
    assertThat(asked("'prompt':[2147483647],'top_k':2147483647").options().promptTokens())
        .containsExactly(Integer.MAX_VALUE);
  }

  @Test
  void shouldAnswerWithSeveralChoices() {
    served.engine.script =
        request -> answer(End.STOP, request.prompt() + request.sampling().seed(), "!");

    JsonNode answer = complete("'prompt':['a','b'],'n':2,'seed':4");

    assertThat(answer.path("choices"))
        .extracting(choice -> choice.path("index") + " " + choice.path("text").asText())
        .containsExactly("0 a4!", "1 a5!", "2 b4!", "3 b5!");
    assertThat(answer.path("usage"))
        .isEqualTo(
            Served.json("{\"prompt_tokens\":6,\"completion_tokens\":8,\"total_tokens\":14}"));
  }

  @Test
  void shouldStreamSeveralChoices() {
    List<String> events =
        Served.events(
            served.post(
                "/v1/chat/completions",
                "{"
                    + CHAT
                    + ",\"n\":3,\"stream\":true,\"stream_options\":{\"include_usage\":true}}"));

    List<JsonNode> chunks = new ArrayList<>();
    events.subList(0, events.size() - 1).forEach(event -> chunks.add(Served.json(event)));
    assertThat(events).last().isEqualTo("[DONE]");
    JsonNode usage = chunks.remove(chunks.size() - 1).path("usage");
    assertThat(usage)
        .isEqualTo(
            Served.json("{\"prompt_tokens\":3,\"completion_tokens\":12,\"total_tokens\":15}"));
    for (int index : IntStream.range(0, 3).toArray()) {
      List<JsonNode> own =
          chunks.stream()
              .map(chunk -> chunk.path("choices").path(0))
              .filter(choice -> choice.path("index").asInt() == index)
              .toList();
      assertThat(own)
          .extracting(choice -> choice.path("delta").path("content").asText())
          .containsExactly("", "Hello", ",", " wörld", "");
      assertThat(own.get(4).path("finish_reason").asText()).isEqualTo("stop");
    }
  }

  /** Two tokens, the second with half a character. */
  static Flux<TextPiece> withLogprobs() {
    Logprob half = new Logprob("\ufffd", Double.NEGATIVE_INFINITY, List.of());
    Logprob best = new Logprob(" é", -0.25, List.of());
    List<Logprob> first = List.of(new Logprob(" é", -0.25, List.of(best)));
    List<Logprob> second =
        List.of(new Logprob("\ufffd", Double.NEGATIVE_INFINITY, List.of(best, half)));
    return Flux.just(
        new TextPiece(" é", 3, 1, End.NOT_YET, first), new TextPiece("", 3, 2, End.STOP, second));
  }

  @Test
  void shouldWriteLogprobsOfAPrompt() {
    served.engine.script = request -> withLogprobs();

    JsonNode logprobs = complete("'prompt':'a','logprobs':2").at("/choices/0/logprobs");

    assertThat(logprobs)
        .isEqualTo(
            Served.json(
                "{\"tokens\":[\" é\",\"\ufffd\"],\"token_logprobs\":[-0.25,-9999.0],"
                    + "\"top_logprobs\":[{\" é\":-0.25},{\" é\":-0.25,\"\ufffd\":-9999.0}],"
                    + "\"text_offset\":[0,2]}"));
    JsonNode none = complete("'prompt':'a','logprobs':0").at("/choices/0/logprobs");
    assertThat(none.path("tokens")).hasSize(2);
    assertThat(none.path("top_logprobs").isNull()).isTrue();
  }

  @Test
  void shouldStreamLogprobsOfAChat() {
    served.engine.script = request -> withLogprobs();

    List<String> events =
        Served.events(
            served.post(
                "/v1/chat/completions",
                "{" + CHAT + ",\"stream\":true,\"logprobs\":true,\"top_logprobs\":2}"));

    assertThat(Served.json(events.get(1)).at("/choices/0/logprobs"))
        .isEqualTo(
            Served.json(
                "{\"content\":[{\"token\":\" é\",\"logprob\":-0.25,\"bytes\":[32,195,169],"
                    + "\"top_logprobs\":[{\"token\":\" é\",\"logprob\":-0.25,"
                    + "\"bytes\":[32,195,169]}]}],\"refusal\":null}"));
    JsonNode second = Served.json(events.get(2)).at("/choices/0/logprobs/content/0");
    assertThat(second.path("bytes").isNull()).isTrue();
    assertThat(second.path("top_logprobs")).hasSize(2);
    assertThat(Served.json(events.get(3)).at("/choices/0/logprobs").isNull()).isTrue();
  }
}
