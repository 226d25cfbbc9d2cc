// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.engine;

import static java.util.concurrent.TimeUnit.SECONDS;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.catchThrowableOfType;
import static org.awaitility.Awaitility.await;

import io.fluxccl.Aborted;
import io.fluxccl.RemoteFailure;
import io.fluxccl.group.DeviceChoice;
import io.fluxccl.group.JoinOptions;
import io.fluxccl.group.RankGroup;
import io.fluxccl.group.StepLoop.Step;
import io.fluxccl.samples.inference.engine.TextRequest.Sampling;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.function.IntConsumer;
import java.util.function.UnaryOperator;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import reactor.core.publisher.Mono;
import reactor.core.publisher.Sinks;

/** Requests that make steps fail, on two ranks of this JVM that meet again after each failure. */
@Timeout(120)
class FailedStepsTest {
  private static final Duration LONG = Duration.ofSeconds(60);
  private static final ModelOptions OPTIONS = new ModelOptions(8, 4, 64, 4);
  private static final RestartLimits LIMITS =
      new RestartLimits(3, Duration.ofMillis(1), Duration.ofMillis(10));

  /** The seed of a request that makes each of its steps fail. */
  private static final long POISON = 666;

  @TempDir private Path folder;

  private final List<InferenceEngine> engines = new ArrayList<>();
  private final List<Sinks.Many<RankGroup>> generations = new ArrayList<>();
  private final List<CompletableFuture<Void>> serving = new ArrayList<>();
  private volatile List<RankGroup> groups = List.of();
  private volatile boolean closing;
  private InferenceEngine engine;

  @BeforeEach
  void write() throws IOException {
    new RandomModel(1).write(folder);
  }

  /** Serves until the end of the test; {@code wrapper} is around the steps of rank 1. */
  private void serve(UnaryOperator<Step> wrapper) throws IOException {
    for (int rank = 0; rank < 2; rank++) {
      UnaryOperator<Step> own = rank == 1 ? wrapper : UnaryOperator.identity();
      Sinks.Many<RankGroup> groupsOfRank = Sinks.many().unicast().onBackpressureBuffer();
      engines.add(new InferenceEngine(folder, OPTIONS, LIMITS, own));
      generations.add(groupsOfRank);
      serving.add(engines.get(rank).serve(groupsOfRank.asFlux()).toFuture());
    }
    engine = engines.get(0);
    meet();
  }

  private synchronized void meet() {
    if (closing) {
      return;
    }
    RankGroup.closeAll(groups);
    groups = RankGroup.local(2, JoinOptions.of(0, 1).withDevice(DeviceChoice.HOST));
    groups
        .get(0)
        .communicator()
        .failed()
        .thenRunAsync(this::meet, task -> new Thread(task).start());
    for (int rank = 0; rank < 2; rank++) {
      generations.get(rank).tryEmitNext(groups.get(rank));
    }
  }

  @AfterEach
  void close() {
    synchronized (this) {
      closing = true;
    }
    engines.forEach(InferenceEngine::close);
    generations.forEach(Sinks.Many::tryEmitComplete);
    if (serving.stream().anyMatch(CompletableFuture::isCompletedExceptionally)) {
      RankGroup.closeAll(groups); // for which rank 1 waits
    }
    serving.forEach(each -> each.handle((done, failure) -> null).orTimeout(60, SECONDS).join());
    RankGroup.closeAll(groups);
  }

  private CompletableFuture<String> answer(int number, int tokens, long seed) {
    TextRequest request =
        new TextRequest("w" + number + " w1 w2", tokens, new Sampling(0, 1, seed), List.of(), LONG);
    return engine.generate(request).map(TextPiece::text).collect(Collectors.joining()).toFuture();
  }

  private List<String> alone(int tokens) {
    return IntStream.range(0, 4).mapToObj(i -> answer(i, tokens, 0).join()).toList();
  }

  private static Refused refusal(CompletableFuture<String> answer) {
    CompletionException thrown =
        catchThrowableOfType(CompletionException.class, () -> answer.orTimeout(60, SECONDS).join());
    assertThat(thrown).hasCauseInstanceOf(Refused.class);
    return (Refused) thrown.getCause();
  }

  /** Calls {@code found} with the offset of each row of a poisoned request. */
  private static void poisoned(byte[] command, IntConsumer found) {
    ByteBuffer bytes = ByteBuffer.wrap(command).order(ByteOrder.LITTLE_ENDIAN);
    for (int at = StepRows.HEADER; at < command.length; at += StepRows.ROW) {
      if (bytes.getLong(at + 24) == POISON) {
        found.accept(at);
      }
    }
  }

  private static Mono<Void> failIfPoisoned(byte[] command, Step step) {
    List<Integer> rows = new ArrayList<>();
    poisoned(command, rows::add);
    return rows.isEmpty()
        ? step.run(command)
        : Mono.error(new IllegalStateException("a fault without a row"));
  }

  @Test
  void shouldEndOnlyTheRequestThatMakesStepsFail() throws IOException {
    serve(step -> command -> failIfPoisoned(command, step));
    List<String> alone = alone(30);
    List<CompletableFuture<String>> others =
        IntStream.range(0, 3).mapToObj(i -> answer(i, 30, 0)).toList();
    Refused refusal = refusal(answer(3, 30, POISON));
    assertThat(refusal.reason()).isEqualTo(Refused.Reason.FAILED);
    assertThat(refusal).hasMessageContainingAll("step", "rank 1", "a fault without a row");
    for (int i = 0; i < 3; i++) {
      assertThat(others.get(i)).succeedsWithin(LONG).isEqualTo(alone.get(i));
    }
    // With the suspects together, and with the cause alone.
    assertThat(engine.status().restarts()).isEqualTo(2);
    assertThat(engine.status().lastFailure()).contains("a fault without a row");
    assertThat(answer(3, 30, 0)).succeedsWithin(LONG).isEqualTo(alone.get(3));
  }

  @Test
  void shouldRestartOnceIfTheFailureNamesTheRow() throws IOException {
    // A token beyond the vocabulary, as the embedding's kernel gets it.
    serve(
        step ->
            command -> {
              byte[] changed = command.clone();
              poisoned(changed, at -> changed[at + 2] = 1);
              return step.run(changed);
            });
    List<String> alone = alone(30);
    List<CompletableFuture<String>> others =
        IntStream.range(0, 3).mapToObj(i -> answer(i, 30, 0)).toList();
    Refused refusal = refusal(answer(3, 30, POISON));
    assertThat(refusal.reason()).isEqualTo(Refused.Reason.FAILED);
    assertThat(refusal).hasMessageContainingAll("rank 1", "position=", "out of bounds");
    for (int i = 0; i < 3; i++) {
      assertThat(others.get(i)).succeedsWithin(LONG).isEqualTo(alone.get(i));
    }
    assertThat(engine.status().restarts()).isEqualTo(1);
  }

  @Test
  void shouldEndTwoSuchRequestsAtOnce() throws IOException {
    serve(step -> command -> failIfPoisoned(command, step));
    List<String> alone = alone(20);
    List<CompletableFuture<String>> answers =
        List.of(answer(0, 20, POISON), answer(1, 20, 0), answer(2, 20, POISON), answer(3, 20, 0));
    assertThat(refusal(answers.get(0)).reason()).isEqualTo(Refused.Reason.FAILED);
    assertThat(refusal(answers.get(2)).reason()).isEqualTo(Refused.Reason.FAILED);
    assertThat(answers.get(1)).succeedsWithin(LONG).isEqualTo(alone.get(1));
    assertThat(answers.get(3)).succeedsWithin(LONG).isEqualTo(alone.get(3));
    assertThat(engine.status().restarts()).isLessThanOrEqualTo(4);
  }

  @Test
  void shouldEndItWhileARankDies() throws IOException {
    serve(step -> command -> failIfPoisoned(command, step));
    List<String> alone = alone(60);
    CompletableFuture<String> other = answer(0, 60, 0);
    CompletableFuture<String> poisoned = answer(1, 60, POISON);
    await().atMost(LONG).until(() -> engine.status().restarts() > 0 && engine.status().ready());
    groups.get(1).communicator().abort(new RemoteFailure(1, "rank 1 was killed"));
    assertThat(refusal(poisoned).reason()).isEqualTo(Refused.Reason.FAILED);
    assertThat(other).succeedsWithin(LONG).isEqualTo(alone.get(0));
  }

  @Test
  void shouldBlameNoRequestForDeathsAtDifferentTokens() throws IOException {
    serve(UnaryOperator.identity());
    String alone = alone(100).get(0);
    List<TextPiece> pieces = new ArrayList<>();
    CompletableFuture<String> answer =
        engine
            .generate(new TextRequest("w0 w1 w2", 100, Sampling.GREEDY, List.of(), LONG))
            .doOnNext(
                piece -> {
                  pieces.add(piece);
                  if (pieces.size() % 15 == 0) {
                    groups.get(1).communicator().abort(new RemoteFailure(1, "rank 1 was killed"));
                  }
                })
            .map(TextPiece::text)
            .collect(Collectors.joining())
            .toFuture();
    assertThat(answer).succeedsWithin(LONG).isEqualTo(alone);
    await().atMost(LONG).until(() -> engine.status().restarts() > 0);
  }

  @Test
  void shouldGiveUpAfterTooManyFailuresInARow() throws IOException {
    serve(
        step -> {
          throw new IllegalStateException("rank 1 lacks a kernel");
        });
    assertThat(serving.get(0))
        .failsWithin(LONG)
        .withThrowableThat()
        .havingCause()
        .isInstanceOf(Aborted.class)
        .withMessageContainingAll("gave up after 4", "--failures=3", "rank 1 lacks a kernel");
    assertThat(engine.status().ready()).isFalse();
    assertThat(engine.status().lastFailure()).contains("rank 1 lacks a kernel");
    assertThat(refusal(answer(0, 3, 0)).reason()).isEqualTo(Refused.Reason.UNAVAILABLE);
  }

  @Test
  void shouldEndInOrderIfARankFailsAfterClose() throws IOException {
    serve(step -> command -> Mono.never());
    CompletableFuture<String> answer = answer(0, 3, 0);
    await().atMost(LONG).until(() -> engine.status().running() > 0);
    synchronized (this) {
      closing = true; // the ranks do not meet again
    }
    engine.close();
    assertThat(refusal(answer).reason()).isEqualTo(Refused.Reason.UNAVAILABLE);
    assertThat(serving.get(0)).isNotDone(); // its step waits for rank 1
    groups.get(1).communicator().abort(new Aborted(1, "rank 1 failed late"));
    assertThat(serving.get(0)).succeedsWithin(LONG);
  }

  @Test
  void shouldWaitLongerAfterEachFailure() {
    RestartLimits limits = RestartLimits.DEFAULT;
    assertThat(IntStream.of(0, 1, 2, 3, 4, 10, 1000).mapToObj(limits::wait))
        .containsExactly(
            Duration.ZERO,
            Duration.ZERO,
            Duration.ofMillis(100),
            Duration.ofMillis(200),
            Duration.ofMillis(400),
            Duration.ofSeconds(5),
            Duration.ofSeconds(5));
  }
}
