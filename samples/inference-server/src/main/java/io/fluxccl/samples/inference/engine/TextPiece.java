// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.engine;

import java.util.List;

/**
 * A piece of an answer.
 *
 * @param text may be empty: a character can take several tokens
 * @param promptTokens number of tokens of the prompt
 * @param tokens number of tokens of the answer so far, including this piece
 * @param end why the answer ends with this piece; NOT_YET if it continues
 * @param logprobs of the tokens whose text begins in this piece; empty if the request wants none
 */
public record TextPiece(
    String text, int promptTokens, int tokens, End end, List<Logprob> logprobs) {

  /** Creates a piece without logprobs. */
  public TextPiece(String text, int promptTokens, int tokens, End end) {
    this(text, promptTokens, tokens, end, List.of());
  }

  /** Whether and why an answer ends. */
  public enum End {
    /** More pieces follow. */
    NOT_YET,
    /** The model's own end, a stop text or a stop token. */
    STOP,
    /** The limit of tokens, or of the model's context. */
    LENGTH
  }

  /**
   * The logarithm of a token's probability, as the model computed it: before any adjustment.
   *
   * @param token the token's text
   * @param value the logarithm
   * @param best the most likely tokens at its place, best first; empty for these themselves
   */
  public record Logprob(String token, double value, List<Logprob> best) {}
}
