// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.engine;

import io.fluxccl.samples.inference.engine.TextRequest.Adjustments;
import io.fluxccl.samples.inference.engine.TextRequest.Options;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Set;

/**
 * A request on rank 0: its tokens so far, and the pages of their keys and values. Because the
 * tokens are known, a sequence continues in the next generation of the ranks, which computes it
 * again from its first token. Guarded by its {@link Batch}, except for {@link #abandoned}.
 */
final class Sequence {
  final TextRequest.Sampling sampling;
  final TextStream stream;
  private final Options options;

  /** Set by any thread: the client has disconnected, or its deadline has passed. */
  volatile boolean abandoned;

  /** The number by which kernels know it; -1 while it waits. */
  int number = -1;

  /** Its pages of the cache; empty while it waits. */
  int[] pages = {};

  /** Number of its tokens that are in the cache. */
  int computed;

  /** Number of its tokens that the step in flight computes. */
  int inStep;

  /** Failures in a row of steps with a common token of this sequence; 0 after it is computed. */
  private int strikes;

  // The tokens that all those steps had.
  private int suspectFrom;
  private int suspectTo;

  private int[] tokens;
  private int length;
  private final int promptLength;
  private final int maxLength;

  Sequence(int[] prompt, int maxTokens, TextRequest.Sampling sampling, TextStream stream) {
    this(prompt, maxTokens, sampling, stream, Options.NONE);
  }

  Sequence(
      int[] prompt,
      int maxTokens,
      TextRequest.Sampling sampling,
      TextStream stream,
      Options options) {
    this.tokens = prompt;
    this.length = prompt.length;
    this.promptLength = prompt.length;
    this.options = options;
    this.maxLength = prompt.length + maxTokens;
    this.sampling = sampling;
    this.stream = stream;
  }

  int pagesNeeded() {
    return (maxLength + ModelOptions.PAGE - 1) / ModelOptions.PAGE;
  }

  /** Returns how many of its tokens are not in the cache yet. */
  int remaining() {
    return length - computed;
  }

  boolean isFull() {
    return length == maxLength;
  }

  void add(int token) {
    if (length == tokens.length) {
      tokens = Arrays.copyOf(tokens, Math.min(maxLength, 2 * length));
    }
    tokens[length++] = token;
  }

  /** Returns whether its next token needs the logits of the whole vocabulary on rank 0. */
  boolean needsLogits() {
    return options.logprobs() >= 0 || isChosenByHost();
  }

  private boolean isChosenByHost() {
    return sampling != null && !sampling.adjustments().equals(Adjustments.NONE)
        || length - promptLength < options.minTokens();
  }

  /** Returns the tokens that end it. */
  Set<Integer> ends(Set<Integer> ofModel) {
    if (options.stopTokens().isEmpty()) {
      return options.ignoreEnds() ? Set.of() : ofModel;
    }
    Set<Integer> all = new HashSet<>(options.ignoreEnds() ? Set.of() : ofModel);
    all.addAll(options.stopTokens());
    return all;
  }

  /**
   * Returns the next token; -1 if the logits are not finite.
   *
   * @param logits of the whole vocabulary
   * @param chosen the token that the kernels chose, from unchanged logits
   */
  int choose(float[] logits, int chosen, Set<Integer> ends) {
    if (!isChosenByHost() || chosen < 0) {
      return chosen;
    }
    float[] adjusted = logits.clone();
    int[] answer = Arrays.copyOfRange(tokens, promptLength, length);
    HostChoice.adjust(adjusted, sampling.adjustments(), answer);
    if (answer.length < options.minTokens()) {
      HostChoice.exclude(adjusted, ends);
    }
    return HostChoice.choose(adjusted, sampling, length - 1);
  }

  /** Returns what the client wants to know of a token's probability; empty if nothing. */
  List<HostChoice.Logprob> logprobs(float[] logits, int token) {
    boolean wanted = options.logprobs() >= 0 && token >= 0;
    return wanted ? HostChoice.logprobs(logits, token, options.logprobs()) : List.of();
  }

  /** Counts a failure of the step in flight, and returns the number of failures in a row. */
  int strike() {
    int from = Math.max(computed, suspectFrom);
    int to = Math.min(computed + inStep, suspectTo);
    boolean again = strikes > 0 && from < to;
    strikes = again ? strikes + 1 : 1;
    suspectFrom = again ? from : computed;
    suspectTo = again ? to : computed + inStep;
    return strikes;
  }

  /** Returns whether this sequence may be the cause of a failure. */
  boolean isSuspect() {
    return strikes > 0;
  }

  /** Takes over that the step in flight has succeeded. */
  void stepDone() {
    computed += inStep;
    if (computed >= suspectTo) {
      strikes = 0;
    }
  }

  boolean has(int position) {
    return position < length;
  }

  StepRows.Row row(int position) {
    int page = pages[position / ModelOptions.PAGE];
    int slot = page * ModelOptions.PAGE + position % ModelOptions.PAGE;
    return new StepRows.Row(
        tokens[position],
        position,
        number,
        slot,
        isChosenByHost() ? 0 : sampling.temperature(), // greedy is the least work for kernels
        sampling.topP(),
        sampling.seed());
  }
}
