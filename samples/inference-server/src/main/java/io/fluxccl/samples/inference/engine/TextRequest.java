// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.engine;

import java.time.Duration;
import java.util.List;

/**
 * A request for text.
 *
 * @param prompt the text to continue
 * @param maxTokens how many tokens to add at most, 1 or more
 * @param sampling how each token is chosen
 * @param stop texts that end the answer, which does not contain them
 * @param deadline how long the whole answer may take, waiting included
 */
public record TextRequest(
    String prompt, int maxTokens, Sampling sampling, List<String> stop, Duration deadline) {

  /**
   * How a token is chosen.
   *
   * @param temperature 0 for the most likely one; above, the larger the more random
   * @param topP choose among the most likely tokens that together have this probability; 1 for all
   * @param seed equal seeds give equal texts
   */
  public record Sampling(float temperature, float topP, long seed) {
    /** Always the most likely token. */
    public static final Sampling GREEDY = new Sampling(0, 1, 0);
  }
}
