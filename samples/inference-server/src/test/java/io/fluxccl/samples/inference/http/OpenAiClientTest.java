// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.http;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.awaitility.Awaitility.await;

import com.openai.client.OpenAIClient;
import com.openai.client.okhttp.OpenAIOkHttpClient;
import com.openai.errors.BadRequestException;
import com.openai.errors.NotFoundException;
import com.openai.errors.RateLimitException;
import com.openai.errors.SseException;
import com.openai.models.chat.completions.ChatCompletion;
import com.openai.models.chat.completions.ChatCompletionChunk;
import com.openai.models.chat.completions.ChatCompletionCreateParams;
import com.openai.models.chat.completions.ChatCompletionStreamOptions;
import com.openai.models.completions.Completion;
import com.openai.models.completions.CompletionCreateParams;
import com.openai.models.models.Model;
import io.fluxccl.samples.inference.engine.Refused;
import io.fluxccl.samples.inference.engine.TextPiece.End;
import io.fluxccl.samples.inference.engine.TextRequest;
import java.util.List;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.stream.Collectors;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import reactor.core.publisher.Flux;

/** The client of OpenAI for Java. */
class OpenAiClientTest {
  private final Served served = new Served();
  private final OpenAIClient client = client(0);

  @AfterEach
  void close() {
    client.close();
    served.close();
  }

  @Test
  void shouldComplete() {
    Completion answer = client.completions().create(prompt().stop("x").build()).validate();

    assertThat(answer.choices()).hasSize(1);
    assertThat(answer.choices().get(0).text()).isEqualTo("Hello, wörld");
    assertThat(answer.choices().get(0).finishReason().asString()).isEqualTo("stop");
    assertThat(answer.usage().orElseThrow().totalTokens()).isEqualTo(7);
    assertThat(served.engine.requests.element().stop()).containsExactly("x");
  }

  @Test
  void shouldStreamACompletion() {
    try (var answer = client.completions().createStreaming(prompt().build())) {
      String text =
          answer.stream().map(chunk -> chunk.choices().get(0).text()).collect(Collectors.joining());
      assertThat(text).isEqualTo("Hello, wörld");
    }
  }

  @Test
  void shouldChat() {
    ChatCompletion answer =
        client
            .chat()
            .completions()
            .create(chat().addSystemMessage("Be brief").maxCompletionTokens(9).build())
            .validate();

    assertThat(answer.choices().get(0).message().content()).contains("Hello, wörld");
    assertThat(answer.choices().get(0).finishReason().asString()).isEqualTo("stop");
    assertThat(answer.usage().orElseThrow().promptTokens()).isEqualTo(3);
    assertThat(served.engine.requests.element().prompt()).isEqualTo("Say\nBe brief");
    assertThat(served.engine.requests.element().maxTokens()).isEqualTo(9);
  }

  @Test
  void shouldStreamAChatWithUsage() {
    var options = ChatCompletionStreamOptions.builder().includeUsage(true).build();

    List<ChatCompletionChunk> chunks;
    try (var answer =
        client.chat().completions().createStreaming(chat().streamOptions(options).build())) {
      chunks = answer.stream().map(ChatCompletionChunk::validate).toList();
    }

    assertThat(chunks)
        .flatExtracting(ChatCompletionChunk::choices)
        .map(choice -> choice.delta().content().orElse(""))
        .containsExactly("", "Hello", ",", " wörld", "");
    assertThat(chunks.get(4).choices().get(0).finishReason().orElseThrow().asString())
        .isEqualTo("stop");
    assertThat(chunks.get(5).usage().orElseThrow().completionTokens()).isEqualTo(4);
  }

  @Test
  void shouldContinueAConversation() {
    var params = chat().addAssistantMessage("Hello").addUserMessage("And?").stop("x");

    ChatCompletion answer = client.chat().completions().create(params.build()).validate();
    params.addMessage(answer.choices().get(0).message()).addUserMessage("Go on");
    client.chat().completions().create(params.build()).validate();

    assertThat(served.engine.requests)
        .extracting(TextRequest::prompt)
        .containsExactly("Say\nHello\nAnd?", "Say\nHello\nAnd?\nHello, wörld\nGo on");
    assertThat(served.engine.requests.element().stop()).containsExactly("x");
  }

  @Test
  void shouldCancelAStreamThatTheClientCloses() {
    AtomicBoolean cancelled = new AtomicBoolean();
    served.engine.script =
        request ->
            FakeEngine.answer(End.NOT_YET, "a")
                .concatWith(Flux.never())
                .doOnCancel(() -> cancelled.set(true));
    try (var answer = client.completions().createStreaming(prompt().build())) {
      assertThat(answer.stream().iterator().next().choices().get(0).text()).isEqualTo("a");
    }
    await().untilTrue(cancelled);
  }

  @Test
  void shouldReturnChoicesWithLogprobs() {
    served.engine.script = request -> ParametersTest.withLogprobs();

    ChatCompletion chat =
        client.chat().completions().create(chat().n(2).logprobs(true).topLogprobs(2).build());
    Completion completion = client.completions().create(prompt().logprobs(2).build()).validate();

    assertThat(chat.validate().choices()).hasSize(2);
    assertThat(chat.choices().get(1).logprobs().orElseThrow().content().orElseThrow())
        .extracting(each -> each.topLogprobs().size())
        .containsExactly(1, 2);
    assertThat(chat.usage().orElseThrow().completionTokens()).isEqualTo(4);
    assertThat(completion.choices().get(0).logprobs().orElseThrow().tokens().orElseThrow())
        .containsExactly(" é", "\ufffd");
  }

  @Test
  void shouldFindTheModel() {
    assertThat(client.models().list().data()).extracting(Model::id).containsOnly(FakeEngine.MODEL);
    assertThat(client.models().retrieve(FakeEngine.MODEL).validate().ownedBy())
        .isEqualTo("fluxccl");
    assertThatThrownBy(() -> client.models().retrieve("gpt-4"))
        .isInstanceOf(NotFoundException.class);
  }

  @Test
  void shouldUnderstandErrors() {
    assertThatThrownBy(() -> client.completions().create(prompt().temperature(3).build()))
        .isInstanceOfSatisfying(
            BadRequestException.class,
            e -> {
              assertThat(e.param()).contains("temperature");
              assertThat(e.code()).contains("invalid_value");
              assertThat(e).hasMessageContaining("must be from 0 to 2");
            });
    served.engine.script = request -> Flux.error(FakeEngine.refused(Refused.Reason.BUSY));
    assertThatThrownBy(() -> client.completions().createStreaming(prompt().build()))
        .isInstanceOf(RateLimitException.class);
    served.engine.script =
        request ->
            FakeEngine.answer(End.NOT_YET, "a")
                .concatWith(Flux.error(FakeEngine.refused(Refused.Reason.FAILED)));
    assertThatThrownBy(
            () -> {
              try (var answer = client.completions().createStreaming(prompt().build())) {
                answer.stream().forEach(chunk -> {});
              }
            })
        .isInstanceOf(SseException.class)
        .hasMessageContaining("It is FAILED");
  }

  @Test
  void shouldRetryAfterTheTimeOfRetryAfter() {
    var answer = served.engine.script;
    served.engine.script =
        request ->
            served.engine.requests.size() == 1
                ? Flux.error(FakeEngine.refused(Refused.Reason.BUSY))
                : answer.apply(request);
    long start = System.nanoTime();

    OpenAIClient patient = client(2);
    assertThat(patient.completions().create(prompt().build()).choices()).hasSize(1);
    patient.close();

    assertThat(served.engine.requests).hasSize(2);
    assertThat(System.nanoTime() - start).isGreaterThan(1_900_000_000L); // Retry-After: 2
  }

  private OpenAIClient client(int retries) {
    return OpenAIOkHttpClient.builder()
        .baseUrl(served.uri("/v1").toString())
        .apiKey("none")
        .maxRetries(retries)
        .build();
  }

  private static CompletionCreateParams.Builder prompt() {
    return CompletionCreateParams.builder().model(FakeEngine.MODEL).prompt("Say").maxTokens(20);
  }

  private static ChatCompletionCreateParams.Builder chat() {
    return ChatCompletionCreateParams.builder().model(FakeEngine.MODEL).addUserMessage("Say");
  }
}
