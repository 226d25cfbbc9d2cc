// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.engine;

import io.fluxccl.samples.inference.engine.TextPiece.End;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.Optional;
import java.util.Queue;
import java.util.Set;
import java.util.stream.IntStream;

/**
 * The sequences on rank 0 that share steps, and those that wait for a slot. A step has a row for
 * each sequence that continues, and fills the rest with the tokens of prompts, in their order. A
 * sequence gets all the pages that it may need when it enters, so it is never evicted. Thread-safe.
 */
final class Batch {
  private final ModelOptions options;
  private final Set<Integer> ends;

  // The fields below are guarded by this.
  private final Queue<Sequence> waiting = new ArrayDeque<>();
  private final List<Sequence> running = new ArrayList<>();
  private final Deque<Integer> freeNumbers = new ArrayDeque<>();
  private final Deque<Integer> freePages = new ArrayDeque<>();

  /** The sequences that get a token from the step in flight, in the order of its rows. */
  private final List<Sequence> chosen = new ArrayList<>();

  private final List<Broken> broken = new ArrayList<>();
  private boolean inFlight;

  Batch(ModelOptions options, Set<Integer> ends) {
    this.options = options;
    this.ends = ends;
    clear();
  }

  /** A token of a sequence, and whether the sequence ends with it. */
  record Token(Sequence sequence, int token, End end, List<HostChoice.Logprob> logprobs) {}

  /** The results of a step. */
  interface Results {
    /** Returns the token of a chosen row; -1 if its logits are not finite. */
    int next(int row);

    /** Returns the logits of a chosen row, for the whole vocabulary, if the step asked for them. */
    default float[] allLogits(int row) {
      throw new UnsupportedOperationException("no logits of row " + row);
    }
  }

  /**
   * Returns false if too many sequences wait. Sequences that enter with the next step do not count.
   */
  synchronized boolean add(Sequence sequence) {
    waiting.removeIf(each -> each.abandoned);
    return waiting.size() < options.maxWaiting() + freeNumbers.size() && waiting.add(sequence);
  }

  /** A sequence that can't continue, and why. It has left the batch. */
  record Broken(Sequence sequence, RuntimeException reason) {}

  /**
   * Composes the next step; null if there is nothing to do. After a failure it has one suspect
   * alone, until each suspect has computed the tokens that the failed step had.
   */
  synchronized byte[] nextStep() {
    chosen.clear();
    running.forEach(sequence -> sequence.inStep = 0);
    leave();
    enter();
    int brokenBefore = broken.size();
    List<Sequence> all =
        running.stream()
            .filter(Sequence::isSuspect)
            .findFirst()
            .map(List::of)
            .orElseGet(() -> List.copyOf(running));
    List<StepRows.Row> last = new ArrayList<>();
    List<StepRows.Row> others = new ArrayList<>();
    int free = options.maxRows() - (int) all.stream().filter(s -> s.remaining() == 1).count();
    for (Sequence sequence : all) {
      int remaining = sequence.remaining();
      int count = remaining == 1 ? 1 : Math.min(remaining, free);
      List<StepRows.Row> rows;
      try {
        rows =
            IntStream.range(0, count).mapToObj(i -> sequence.row(sequence.computed + i)).toList();
      } catch (RuntimeException e) {
        breakOff(sequence, e);
        continue;
      }
      free -= remaining == 1 ? 0 : count;
      sequence.inStep = count;
      int more = count == remaining ? count - 1 : count;
      others.addAll(rows.subList(0, more));
      last.addAll(rows.subList(more, count));
      if (count == remaining) {
        chosen.add(sequence);
      }
    }
    int count = last.size() + others.size();
    if (count == 0 && broken.size() > brokenBefore) {
      return nextStep(); // of the others
    }
    int next = last.size();
    last.addAll(others);
    inFlight = count > 0;
    int logits = next;
    while (logits > 0 && !chosen.get(logits - 1).needsLogits()) {
      logits--;
    }
    return inFlight ? StepRows.command(last, count, next, logits) : null;
  }

  private void breakOff(Sequence sequence, RuntimeException reason) {
    running.remove(sequence);
    free(sequence);
    broken.add(new Broken(sequence, reason));
  }

  /** Returns the sequences that were broken off since the last call. */
  synchronized List<Broken> takeBroken() {
    List<Broken> taken = List.copyOf(broken);
    broken.clear();
    return taken;
  }

  private void leave() {
    List<Sequence> left = running.stream().filter(each -> each.abandoned).toList();
    left.forEach(this::free);
    running.removeAll(left);
  }

  private void free(Sequence sequence) {
    freeNumbers.add(sequence.number);
    for (int page : sequence.pages) {
      freePages.add(page);
    }
  }

  private void enter() {
    waiting.removeIf(each -> each.abandoned);
    while (!waiting.isEmpty()
        && !freeNumbers.isEmpty()
        && waiting.peek().pagesNeeded() <= freePages.size()) {
      Sequence sequence = waiting.remove();
      sequence.number = freeNumbers.remove();
      sequence.pages =
          IntStream.range(0, sequence.pagesNeeded()).map(i -> freePages.remove()).toArray();
      running.add(sequence);
    }
  }

  /**
   * Takes over the results of the step in flight.
   *
   * @return the new tokens; sequences that end have left
   */
  synchronized List<Token> finishStep(Results results) {
    inFlight = false;
    running.forEach(Sequence::stepDone);
    List<Token> tokens = new ArrayList<>();
    for (int i = 0; i < chosen.size(); i++) {
      Sequence sequence = chosen.get(i);
      Set<Integer> own = sequence.ends(ends);
      int token;
      List<HostChoice.Logprob> logprobs = List.of();
      try {
        token = results.next(i);
        if (sequence.needsLogits()) {
          float[] logits = results.allLogits(i);
          token = sequence.choose(logits, token, own);
          logprobs = sequence.logprobs(logits, token);
        }
        sequence.add(token);
      } catch (RuntimeException e) {
        breakOff(sequence, e);
        continue;
      }
      boolean isOver = token < 0 || own.contains(token);
      End end = isOver ? End.STOP : sequence.isFull() ? End.LENGTH : End.NOT_YET;
      tokens.add(new Token(sequence, token, end, logprobs));
      if (end != End.NOT_YET) {
        running.remove(sequence);
        free(sequence);
      }
    }
    return tokens;
  }

  /**
   * Finds the cause of a failure of the step in flight, if there is a step. The cause is the
   * sequence that the failure names. If it names none, all sequences of the step are suspects. The
   * next generation computes each suspect alone, and the cause is the one whose step fails again.
   *
   * @param place the row that the failure names
   * @param limit failures in a row of the same tokens after which a sequence is the cause
   * @return the cause, which has left the batch; empty if it is not known yet
   */
  synchronized List<Sequence> blame(Optional<RowFailure.Place> place, int limit) {
    List<Sequence> inStep = running.stream().filter(s -> inFlight && s.inStep > 0).toList();
    List<Sequence> guilty =
        running.stream()
            .filter(
                s -> place.filter(p -> p.sequence() == s.number && s.has(p.position())).isPresent())
            .toList();
    if (guilty.isEmpty()) {
      long most = inStep.stream().mapToInt(Sequence::strike).max().orElse(0);
      guilty = inStep.size() == 1 && most >= limit ? inStep : List.of();
    }
    inFlight = false;
    guilty.forEach(this::free);
    running.removeAll(guilty);
    return guilty;
  }

  /** Forgets the step in flight and the cache: the ranks are others. */
  synchronized void restart() {
    inFlight = false;
    chosen.clear();
    running.forEach(sequence -> sequence.computed = 0);
  }

  /** Removes all sequences, even in the middle of a step, and returns them. */
  synchronized List<Sequence> clear() {
    List<Sequence> all = new ArrayList<>(running);
    all.addAll(waiting);
    inFlight = false;
    chosen.clear();
    running.clear();
    waiting.clear();
    freeNumbers.clear();
    freePages.clear();
    IntStream.range(0, options.maxSequences()).forEach(freeNumbers::add);
    IntStream.range(0, options.pages()).forEach(freePages::add);
    return all;
  }

  synchronized int running() {
    return running.size();
  }

  synchronized int waiting() {
    return waiting.size();
  }

  synchronized int pagesUsed() {
    return options.pages() - freePages.size();
  }
}
