// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.engine;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.assertj.core.api.Assertions.within;

import io.fluxccl.group.DeviceChoice;
import io.fluxccl.group.JoinOptions;
import io.fluxccl.group.RankGroup;
import io.fluxccl.samples.inference.engine.TextPiece.End;
import io.fluxccl.samples.inference.engine.TextPiece.Logprob;
import io.fluxccl.samples.inference.engine.TextRequest.Adjustments;
import io.fluxccl.samples.inference.engine.TextRequest.Options;
import io.fluxccl.samples.inference.engine.TextRequest.Sampling;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.stream.Collectors;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import reactor.core.publisher.Flux;

/** The options of requests, on an engine of one rank whose tokens are the words w0, w1, ... */
@Timeout(120)
class TextOptionsTest {
  private static final Duration LONG = Duration.ofSeconds(60);

  @TempDir private Path folder;
  private InferenceEngine engine;
  private CompletableFuture<Void> serving;

  private void serve(RandomModel model, int end) throws IOException {
    model.write(folder);
    Path config = folder.resolve("config.json");
    String ends = "\"eos_token_id\": [";
    Files.writeString(config, Files.readString(config).replace(ends, ends + end + ", "));
    engine = new InferenceEngine(folder, new ModelOptions(8, 4, 64, 4));
    RankGroup group = RankGroup.local(1, JoinOptions.of(0, 1).withDevice(DeviceChoice.HOST)).get(0);
    serving = engine.serve(Flux.just(group)).toFuture();
    Awaitility.await().atMost(LONG).until(() -> engine.status().ready());
  }

  private void serve() throws IOException {
    serve(new RandomModel(1), 100);
  }

  @AfterEach
  void close() {
    engine.close();
    assertThat(serving).succeedsWithin(LONG);
  }

  private static Options options(int logprobs) {
    return new Options(List.of(), false, logprobs, Set.of(), false, 0);
  }

  private static Sampling greedy(Adjustments adjustments) {
    return new Sampling(0, 1, 0, adjustments);
  }

  private List<TextPiece> generate(Sampling sampling, Options options) {
    TextRequest request = new TextRequest("w5 w11", 12, sampling, List.of(), LONG, options);
    return engine.generate(request).collectList().block(LONG);
  }

  private static List<String> words(List<TextPiece> pieces) {
    String text = pieces.stream().map(TextPiece::text).collect(Collectors.joining());
    return List.of(text.trim().split(" +"));
  }

  private static List<Logprob> logprobs(List<TextPiece> pieces) {
    return pieces.stream().flatMap(piece -> piece.logprobs().stream()).toList();
  }

  @Test
  void shouldReturnLogprobsOfEachToken() throws IOException {
    serve();
    for (Sampling sampling : List.of(Sampling.GREEDY, new Sampling(1, 0.9f, 4))) {
      List<TextPiece> pieces = generate(sampling, options(64));
      assertThat(words(pieces)).isEqualTo(words(generate(sampling, Options.NONE)));
      List<Logprob> logprobs = logprobs(pieces);
      assertThat(logprobs).extracting(each -> each.token().trim()).isEqualTo(words(pieces));
      for (Logprob each : logprobs) {
        double sum = each.best().stream().mapToDouble(other -> Math.exp(other.value())).sum();
        assertThat(sum).isCloseTo(1, within(1e-6));
        assertThat(each.best()).anyMatch(other -> other.value() == each.value());
        assertThat(each.best().get(0).value()).isGreaterThanOrEqualTo(each.value());
      }
    }
    assertThat(logprobs(generate(Sampling.GREEDY, options(0))).get(0).best()).isEmpty();
  }

  @Test
  void shouldReturnLogprobsOfTheTokensBeforeAStopText() throws IOException {
    serve();
    List<String> plain = words(generate(Sampling.GREEDY, Options.NONE));
    String stop = plain.get(4) + " " + plain.get(5);
    TextRequest request =
        new TextRequest("w5 w11", 12, Sampling.GREEDY, List.of(stop), LONG, options(0));
    List<TextPiece> pieces = engine.generate(request).collectList().block(LONG);
    String text = pieces.stream().map(TextPiece::text).collect(Collectors.joining());
    assertThat(text.trim()).isEqualTo(String.join(" ", plain).split(stop)[0].trim());
    List<String> tokens = logprobs(pieces).stream().map(Logprob::token).toList();
    assertThat(String.join("", tokens)).startsWith(text);
    assertThat(String.join("", tokens.subList(0, tokens.size() - 1)).length())
        .isLessThan(text.length());
  }

  @Test
  void shouldChooseByAdjustments() throws IOException {
    serve();
    List<String> plain = words(generate(Sampling.GREEDY, Options.NONE));
    Adjustments bias = new Adjustments(0, 0, 0, 0, Map.of(9, 100f));
    assertThat(words(generate(greedy(bias), Options.NONE))).hasSize(12).containsOnly("w9");
    int first = Integer.parseInt(plain.get(0).substring(1));
    Adjustments without = new Adjustments(0, 0, 0, 0, Map.of(first, -100f));
    assertThat(words(generate(greedy(without), Options.NONE))).doesNotContain(plain.get(0));
    Adjustments penalty = new Adjustments(0, 0, 0, 100, Map.of());
    assertThat(words(generate(greedy(penalty), Options.NONE))).doesNotHaveDuplicates();
    Adjustments best = new Adjustments(1, 0, 0, 0, Map.of());
    assertThat(words(generate(new Sampling(2, 1, 3, best), Options.NONE))).isEqualTo(plain);
  }

  @Test
  void shouldEndAtStopTokensAfterTheLeastNumberOfTokens() throws IOException {
    serve();
    List<String> plain = words(generate(Sampling.GREEDY, Options.NONE));
    int stop = Integer.parseInt(plain.get(4).substring(1));
    List<TextPiece> pieces = generate(Sampling.GREEDY, ends(Set.of(stop), false, 0));
    assertThat(pieces.get(pieces.size() - 1).end()).isEqualTo(End.STOP);
    assertThat(words(pieces)).isEqualTo(plain.subList(0, plain.indexOf("w" + stop)));
    pieces = generate(Sampling.GREEDY, ends(Set.of(stop), false, 9));
    assertThat(pieces.get(pieces.size() - 1).tokens()).isGreaterThanOrEqualTo(9);
    assertThat(words(pieces).subList(0, 9)).doesNotContain("w" + stop);
  }

  @Test
  void shouldContinueAfterAnEndTokenIfEndsAreIgnored() throws IOException {
    serve();
    List<String> plain = words(generate(Sampling.GREEDY, Options.NONE));
    int end = Integer.parseInt(plain.get(3).substring(1));
    close();
    serve(new RandomModel(1), end);
    List<TextPiece> pieces = generate(Sampling.GREEDY, Options.NONE);
    assertThat(pieces.get(pieces.size() - 1).end()).isEqualTo(End.STOP);
    assertThat(words(generate(Sampling.GREEDY, ends(Set.of(), true, 0)))).isEqualTo(plain);
    assertThat(words(generate(Sampling.GREEDY, ends(Set.of(), false, 12))))
        .hasSize(12)
        .doesNotContain("w" + end);
  }

  private static Options ends(Set<Integer> stops, boolean ignoreEnds, int minTokens) {
    return new Options(List.of(), false, -1, stops, ignoreEnds, minTokens);
  }

  @Test
  void shouldTakeTokensAsAPromptAndEchoIt() throws IOException {
    serve();
    List<String> plain = words(generate(Sampling.GREEDY, Options.NONE));
    List<TextPiece> pieces =
        generate(Sampling.GREEDY, new Options(List.of(5, 11), false, -1, Set.of(), false, 0));
    assertThat(words(pieces)).isEqualTo(plain);
    for (List<Integer> tokens : List.of(List.<Integer>of(), List.of(5, 11))) {
      Options echo = new Options(tokens, true, -1, Set.of(), false, 0);
      TextPiece first = generate(Sampling.GREEDY, echo).get(0);
      assertThat(first.text()).startsWith("w5 w11");
      assertThat(first.tokens()).isEqualTo(1);
    }
  }

  @Test
  void shouldNameTheParameterWithATokenBeyondTheVocabulary() throws IOException {
    serve();
    Options prompt = new Options(List.of(64), false, -1, Set.of(), false, 0);
    expectInvalid("prompt", Sampling.GREEDY, prompt);
    expectInvalid("stop_token_ids", Sampling.GREEDY, ends(Set.of(64), false, 0));
    Adjustments bias = new Adjustments(0, 0, 0, 0, Map.of(64, 1f));
    expectInvalid("logit_bias", greedy(bias), Options.NONE);
  }

  private void expectInvalid(String param, Sampling sampling, Options options) {
    assertThatThrownBy(() -> generate(sampling, options))
        .isInstanceOfSatisfying(
            Refused.class,
            e -> {
              assertThat(e.reason()).isEqualTo(Refused.Reason.INVALID);
              assertThat(e.param()).isEqualTo(param);
              assertThat(e).hasMessageContaining("token 64").hasMessageContaining("64 tokens");
            });
  }

  @Test
  void shouldEndOnlyTheRequestWithInfiniteLogits() throws IOException {
    RandomModel model = new RandomModel(1);
    model.tensors.get("model.embed_tokens.weight")[5 * RandomModel.HIDDEN] = Float.NaN;
    serve(model, 100);
    TextRequest other =
        new TextRequest("w3 w4", 3, new Sampling(0, 1, 0), List.of(), LONG, options(0));
    Set<String> answers = new HashSet<>();
    for (int i = 0; i < 3; i++) {
      for (Options options : List.of(Options.NONE, options(3))) {
        assertThatThrownBy(() -> generate(new Sampling(1, 0.5f, 1), options))
            .isInstanceOf(Refused.class)
            .hasMessageContaining("not a finite number");
      }
      answers.add(String.join(" ", words(engine.generate(other).collectList().block(LONG))));
    }
    assertThat(answers).hasSize(1);
    assertThat(engine.status().generation()).isEqualTo(1);
    assertThat(engine.status().pagesUsed()).isZero();
  }
}
