// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.engine;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.awaitility.Awaitility.await;

import io.fluxccl.Aborted;
import io.fluxccl.group.DeviceChoice;
import io.fluxccl.group.JoinOptions;
import io.fluxccl.group.RankGroup;
import io.fluxccl.samples.inference.engine.TextRequest.Sampling;
import java.io.IOException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Collectors;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;
import org.reactivestreams.Subscription;
import reactor.core.Disposable;
import reactor.core.publisher.BaseSubscriber;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;
import reactor.core.publisher.Sinks;
import reactor.test.StepVerifier;

/** Two ranks in this JVM, each an engine, in one generation after the other. */
@Timeout(120)
class InferenceEngineTest {
  private static final Duration LONG = Duration.ofSeconds(60);
  private static final ModelOptions OPTIONS = new ModelOptions(8, 4, 64, 4);

  @TempDir private Path folder;

  private final List<InferenceEngine> engines = new ArrayList<>();
  private final List<Sinks.Many<RankGroup>> generations = new ArrayList<>();
  private final List<CompletableFuture<Void>> serving = new ArrayList<>();
  private List<RankGroup> groups;

  @BeforeEach
  void open() throws IOException {
    new RandomModel(1).write(folder);
    for (int rank = 0; rank < 2; rank++) {
      InferenceEngine engine = new InferenceEngine(folder, OPTIONS);
      Sinks.Many<RankGroup> own = Sinks.many().unicast().onBackpressureBuffer();
      engines.add(engine);
      generations.add(own);
      serving.add(engine.serve(own.asFlux()).toFuture());
    }
  }

  private TextEngine meet() {
    groups = RankGroup.local(2, JoinOptions.of(0, 1).withDevice(DeviceChoice.HOST));
    for (int rank = 0; rank < 2; rank++) {
      generations.get(rank).tryEmitNext(groups.get(rank));
    }
    await().atMost(LONG).until(() -> engines.get(0).status().ready());
    return engines.get(0);
  }

  @AfterEach
  void close() {
    engines.forEach(InferenceEngine::close);
    generations.forEach(Sinks.Many::tryEmitComplete);
    serving.forEach(each -> assertThat(each).succeedsWithin(LONG));
    await()
        .atMost(LONG)
        .until(
            () -> Thread.getAllStackTraces().keySet(),
            threads -> threads.stream().noneMatch(thread -> thread.getName().startsWith("texts")));
    assertThatThrownBy(() -> engines.get(0).tokenizer().encode("w1"))
        .hasMessageContaining("released");
  }

  private static TextRequest request(String prompt, int maxTokens) {
    return new TextRequest(prompt, maxTokens, Sampling.GREEDY, List.of(), LONG);
  }

  private static Mono<String> text(Flux<TextPiece> pieces) {
    return pieces.map(TextPiece::text).collect(Collectors.joining());
  }

  @Test
  void shouldContinueATextAndReturnWhyItEnds() {
    TextEngine engine = meet();
    List<TextPiece> pieces = engine.generate(request("w5 w11 w42", 10)).collectList().block(LONG);
    TextPiece last = pieces.get(pieces.size() - 1);
    assertThat(last.end()).isEqualTo(TextPiece.End.LENGTH);
    assertThat(last.promptTokens()).isEqualTo(3);
    assertThat(last.tokens()).isEqualTo(10);
    String text = pieces.stream().map(TextPiece::text).collect(Collectors.joining());
    assertThat(text.trim().split(" ")).hasSize(10).allMatch(word -> word.matches("w\\d+"));
    assertThat(pieces.subList(0, pieces.size() - 1))
        .allMatch(piece -> piece.end() == TextPiece.End.NOT_YET);
    assertThat(engine.status().tokens()).isEqualTo(10);
  }

  @Test
  void shouldAnswerManyAtOnceAsEachAlone() {
    TextEngine engine = meet();
    List<String> alone = new ArrayList<>();
    for (int i = 0; i < 8; i++) {
      alone.add(text(engine.generate(request("w" + i + " w1 w2", 20 + i))).block(LONG));
    }
    List<String> together =
        Flux.range(0, 8)
            .flatMapSequential(i -> text(engine.generate(request("w" + i + " w1 w2", 20 + i))))
            .collectList()
            .block(LONG);
    assertThat(together).isEqualTo(alone);
  }

  @Test
  void shouldEndAtAStopText() {
    TextEngine engine = meet();
    String[] words = text(engine.generate(request("w7", 20))).block(LONG).trim().split(" ");
    String stop = words[5] + " " + words[6];
    String before = String.join(" ", words).split(stop)[0];
    TextRequest request = new TextRequest("w7", 20, Sampling.GREEDY, List.of("never", stop), LONG);
    List<TextPiece> pieces = engine.generate(request).collectList().block(LONG);
    assertThat(pieces.get(pieces.size() - 1).end()).isEqualTo(TextPiece.End.STOP);
    assertThat(pieces.stream().map(TextPiece::text).collect(Collectors.joining()).trim())
        .isEqualTo(before.trim());
    await().atMost(LONG).until(() -> engine.status().pagesUsed() == 0);
  }

  private static void expectRefused(Flux<TextPiece> answer, Refused.Reason reason) {
    StepVerifier.create(answer.filter(piece -> false))
        .expectErrorSatisfies(
            e ->
                assertThat(e)
                    .isInstanceOfSatisfying(
                        Refused.class, r -> assertThat(r.reason()).isEqualTo(reason)))
        .verify(LONG);
  }

  @Test
  void shouldRefuseInvalidLateAndUnservableRequests() {
    expectRefused(engines.get(0).generate(request("w1", 1)), Refused.Reason.UNAVAILABLE);
    TextEngine engine = meet();
    expectRefused(engine.generate(request("", 1)), Refused.Reason.INVALID);
    String tooLong = "w1 ".repeat(RandomModel.CONTEXT);
    expectRefused(engine.generate(request(tooLong, 1)), Refused.Reason.INVALID);
    TextRequest late = new TextRequest("w1", 100, Sampling.GREEDY, List.of(), Duration.ofMillis(1));
    expectRefused(engine.generate(late).delayElements(LONG), Refused.Reason.DEADLINE);
    engine.drain().block(LONG);
    expectRefused(engine.generate(request("w1", 1)), Refused.Reason.UNAVAILABLE);
  }

  @Test
  void shouldNotBeDrainedBeforeTheLastPieceIsRead() {
    TextEngine engine = meet();
    List<TextPiece> pieces = new CopyOnWriteArrayList<>();
    AtomicBoolean ended = new AtomicBoolean();
    BaseSubscriber<TextPiece> reader =
        new BaseSubscriber<>() {
          @Override
          protected void hookOnSubscribe(Subscription subscription) {
            // requests nothing yet
          }

          @Override
          protected void hookOnNext(TextPiece piece) {
            pieces.add(piece);
          }

          @Override
          protected void hookOnComplete() {
            ended.set(true);
          }
        };
    engine.generate(request("w5 w11", 3)).subscribe(reader);
    await().atMost(LONG).until(() -> engine.status().tokens() == 3);
    CompletableFuture<Void> drained = engine.drain().toFuture();
    // Many of the looks that it takes.
    await().during(Duration.ofMillis(300)).until(() -> !drained.isDone());
    reader.requestUnbounded();
    assertThat(drained).succeedsWithin(LONG);
    assertThat(ended).isTrue();
    assertThat(pieces).hasSize(3);
  }

  @Test
  void shouldNotBeDrainedBeforeAnErrorIsRead() {
    TextEngine engine = meet();
    AtomicBoolean drained = new AtomicBoolean();
    Flux<TextPiece> read =
        engine
            .generate(request("", 1))
            .doOnError(
                e -> {
                  Disposable drain = engine.drain().subscribe(null, null, () -> drained.set(true));
                  await().during(Duration.ofMillis(300)).until(() -> !drained.get());
                  drain.dispose();
                });
    expectRefused(read, Refused.Reason.INVALID);
    assertThat(engine.drain().toFuture()).succeedsWithin(LONG);
  }

  @Test
  void shouldBeDrainedWhenTheLastClientLeaves() {
    TextEngine engine = meet();
    BaseSubscriber<TextPiece> reader =
        new BaseSubscriber<>() {
          @Override
          protected void hookOnSubscribe(Subscription subscription) {
            request(1);
          }
        };
    engine.generate(request("w5 w11", 100)).subscribe(reader);
    await().atMost(LONG).until(() -> engine.status().tokens() > 0);
    CompletableFuture<Void> drained = engine.drain().toFuture();
    assertThat(drained).isNotDone();
    reader.dispose();
    assertThat(drained).succeedsWithin(LONG);
    await().atMost(LONG).until(() -> engine.status().pagesUsed() == 0);
  }

  @ParameterizedTest
  @MethodSource
  void shouldEndARequestThatHasNoPlaceInAStepAndNoOther(TextRequest wrong) {
    TextEngine engine = meet();
    String alone = text(engine.generate(request("w3 w4", 100))).block(LONG);
    CompletableFuture<Void> begun = new CompletableFuture<>();
    CompletableFuture<String> other =
        text(engine.generate(request("w3 w4", 100)).doOnNext(piece -> begun.complete(null)))
            .toFuture();
    begun.join();
    expectRefused(engine.generate(wrong), Refused.Reason.FAILED);
    assertThat(other).succeedsWithin(LONG).isEqualTo(alone);
    assertThat(engine.status().restarts()).isZero();
    await().atMost(LONG).until(() -> engine.status().pagesUsed() == 0);
  }

  /** A row that can't be composed, and a token for which there is no room. */
  static List<TextRequest> shouldEndARequestThatHasNoPlaceInAStepAndNoOther() {
    return List.of(new TextRequest("w5", 3, null, List.of(), LONG), request("w5", 0));
  }

  @Test
  void shouldBoundTheQueue() {
    TextEngine engine = meet();
    groups.get(1).communicator().abort(new Aborted(1, "so that no request ends"));
    await().atMost(LONG).until(() -> !engine.status().ready());
    List<CompletableFuture<String>> waiting = new ArrayList<>();
    int most = OPTIONS.maxWaiting() + OPTIONS.maxSequences();
    for (int i = 0; i < most; i++) {
      waiting.add(text(engine.generate(request("w" + i, 3))).toFuture());
    }
    await().atMost(LONG).until(() -> engine.status().waiting() == most);
    expectRefused(engine.generate(request("w9", 3)), Refused.Reason.BUSY);
    meet();
    waiting.forEach(each -> assertThat(each).succeedsWithin(LONG));
  }

  @Test
  void shouldFreeThePlaceOfAClientThatLeaves() {
    TextEngine engine = meet();
    String alone = text(engine.generate(request("w3 w4", 100))).block(LONG);
    CompletableFuture<String> stays = text(engine.generate(request("w3 w4", 100))).toFuture();
    StepVerifier.create(engine.generate(request("w8", 100)))
        .expectNextCount(2)
        .thenCancel()
        .verify(LONG);
    assertThat(stays).succeedsWithin(LONG).isEqualTo(alone);
    await().atMost(LONG).until(() -> engine.status().pagesUsed() == 0);
    assertThat(engine.status().running()).isZero();
  }

  @Test
  void shouldNotWaitForASlowReader() {
    TextEngine engine = meet();
    AtomicInteger read = new AtomicInteger();
    StepVerifier.create(
            engine.generate(request("w8", 100)).doOnNext(p -> read.incrementAndGet()), 1)
        .expectNextCount(1)
        .then(() -> text(engine.generate(request("w9", 100))).block(LONG))
        .then(() -> assertThat(read).hasValue(1))
        .thenRequest(Long.MAX_VALUE)
        .expectNextCount(99)
        .verifyComplete();
  }

  @Test
  void shouldContinueAnAnswerInTheNextGeneration() {
    TextEngine engine = meet();
    String alone = text(engine.generate(request("w3 w4 w5", 120))).block(LONG);
    AtomicInteger pieces = new AtomicInteger();
    CompletableFuture<String> answer =
        text(engine
                .generate(request("w3 w4 w5", 120))
                .doOnNext(
                    piece -> {
                      if (pieces.incrementAndGet() == 20) {
                        groups.get(1).communicator().abort(new Aborted(1, "a failure"));
                      }
                    }))
            .toFuture();
    await().atMost(LONG).until(() -> !engine.status().ready());
    assertThat(engine.status().ranks()).hasSize(2);
    meet();
    assertThat(answer).succeedsWithin(LONG).isEqualTo(alone);
  }
}
