// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.engine;

import java.util.Arrays;

/**
 * A request on rank 0: its tokens so far, and the pages of their keys and values. Because the
 * tokens are known, a sequence continues in the next generation of the ranks, which computes it
 * again from its first token. Guarded by its {@link Batch}, except for {@link #abandoned}.
 */
final class Sequence {
  final TextRequest.Sampling sampling;
  final TextStream stream;

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

  private int[] tokens;
  private int length;
  private final int maxLength;

  Sequence(int[] prompt, int maxTokens, TextRequest.Sampling sampling, TextStream stream) {
    this.tokens = prompt;
    this.length = prompt.length;
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

  StepRows.Row row(int position) {
    int page = pages[position / ModelOptions.PAGE];
    int slot = page * ModelOptions.PAGE + position % ModelOptions.PAGE;
    return new StepRows.Row(
        tokens[position],
        position,
        number,
        slot,
        sampling.temperature(),
        sampling.topP(),
        sampling.seed());
  }
}
