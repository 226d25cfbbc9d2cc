// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.engine;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.samples.inference.engine.TextRequest.Sampling;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import org.junit.jupiter.api.Test;

/** Failed steps as the batch sees them, without ranks. */
class BatchTest {
  private static final int ROWS = 8;
  private static final int LIMIT = 2;

  private final Batch batch = new Batch(new ModelOptions(ROWS, 2, 8, 4), Set.of());

  private Sequence add(int promptTokens, Sampling sampling) {
    Sequence sequence = new Sequence(new int[promptTokens], 4, sampling, null);
    assertThat(batch.add(sequence)).isTrue();
    return sequence;
  }

  private static int rows(byte[] command) {
    return (command.length - StepRows.HEADER) / StepRows.ROW;
  }

  private List<Sequence> fail() {
    List<Sequence> guilty = batch.blame(Optional.empty(), LIMIT);
    batch.restart();
    return guilty;
  }

  @Test
  void shouldComposeAStepOfWaitingSequencesIfAllOthersHaveNoPlace() {
    Sequence first = add(2, null);
    Sequence second = add(2, null);
    add(3, Sampling.GREEDY);
    assertThat(rows(batch.nextStep())).isEqualTo(3);
    assertThat(batch.takeBroken())
        .extracting(Batch.Broken::sequence)
        .containsExactly(first, second);
    assertThat(batch.takeBroken()).isEmpty();
    assertThat(batch.running()).isEqualTo(1);
  }

  @Test
  void shouldComputeSuspectsAloneUntilTheyHavePassedTheFailedTokens() {
    add(3, Sampling.GREEDY);
    add(4, Sampling.GREEDY);
    assertThat(rows(batch.nextStep())).isEqualTo(7);
    assertThat(fail()).isEmpty();
    assertThat(rows(batch.nextStep())).isEqualTo(3);
    assertThat(batch.finishStep(row -> 1)).hasSize(1);
    assertThat(rows(batch.nextStep())).isEqualTo(4);
    assertThat(batch.finishStep(row -> 1)).hasSize(1);
    assertThat(rows(batch.nextStep())).isEqualTo(2);
  }

  @Test
  void shouldBlameTheSuspectIfItsTokensFailAgainAlone() {
    Sequence cause = add(3, Sampling.GREEDY);
    add(4, Sampling.GREEDY);
    batch.nextStep();
    fail();
    batch.nextStep();
    assertThat(fail()).containsExactly(cause);
    assertThat(rows(batch.nextStep())).isEqualTo(4);
  }

  @Test
  void shouldBlameNoSequenceIfOtherTokensOfItFail() {
    add(2 * ROWS, Sampling.GREEDY);
    batch.nextStep();
    fail();
    batch.nextStep();
    batch.finishStep(row -> 1);
    batch.nextStep();
    assertThat(fail()).isEmpty();
    assertThat(batch.running()).isEqualTo(1);
  }

  @Test
  void shouldBlameTheSequenceThatAFailureNames() {
    add(3, Sampling.GREEDY);
    Sequence cause = add(4, Sampling.GREEDY);
    batch.nextStep();
    RowFailure failure =
        new RowFailure(cause.row(1), new IllegalStateException("a token beyond the vocabulary"));
    assertThat(batch.blame(RowFailure.place("step 7 failed: " + failure), LIMIT))
        .containsExactly(cause);
    batch.restart();
    assertThat(rows(batch.nextStep())).isEqualTo(3);
  }

  @Test
  void shouldBlameNoSequenceIfNoStepIsInFlight() {
    add(3, Sampling.GREEDY);
    batch.nextStep();
    batch.finishStep(row -> 1);
    for (int round = 0; round < 3; round++) {
      assertThat(fail()).isEmpty();
    }
  }
}
