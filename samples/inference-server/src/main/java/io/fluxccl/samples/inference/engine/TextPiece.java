// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.engine;

/**
 * A piece of an answer.
 *
 * @param text may be empty: a character can take several tokens
 * @param promptTokens number of tokens of the prompt
 * @param tokens number of tokens of the answer so far, including this piece
 * @param end why the answer ends with this piece; NOT_YET if it continues
 */
public record TextPiece(String text, int promptTokens, int tokens, End end) {
  /** Whether and why an answer ends. */
  public enum End {
    /** More pieces follow. */
    NOT_YET,
    /** The model's own end, or a stop text. */
    STOP,
    /** The limit of tokens, or of the model's context. */
    LENGTH
  }
}
