// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.engine;

import java.util.Locale;

/**
 * Limits of the concurrent work of a server.
 *
 * @param maxRows the most rows of a step: tokens that are generated, and prompts' tokens
 * @param maxSequences the most requests that share a step; at most {@code maxRows}
 * @param pages of the cache of keys and values, each of {@link #PAGE} tokens
 * @param maxWaiting the most requests in the queue
 */
public record ModelOptions(int maxRows, int maxSequences, int pages, int maxWaiting) {
  /** Tokens in a page of the cache. */
  public static final int PAGE = 16;

  /** Refuses values that make no sense together. */
  public ModelOptions {
    if (maxSequences < 1 || maxRows < maxSequences || pages < 1 || maxWaiting < 0) {
      throw new IllegalArgumentException(
          String.format(
              Locale.ROOT,
              "maxRows=%d, maxSequences=%d, pages=%d, maxWaiting=%d; at least one sequence and"
                  + " page, and a row for each sequence",
              maxRows,
              maxSequences,
              pages,
              maxWaiting));
    }
  }
}
