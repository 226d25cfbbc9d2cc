// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.engine;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * A request for text.
 *
 * @param prompt the text to continue; ignored if the options have its tokens
 * @param maxTokens how many tokens to add at most, 1 or more
 * @param sampling how each token is chosen
 * @param stop texts that end the answer, which does not contain them
 * @param deadline how long the whole answer may take, waiting included
 * @param options what most requests do without
 */
public record TextRequest(
    String prompt,
    int maxTokens,
    Sampling sampling,
    List<String> stop,
    Duration deadline,
    Options options) {

  /** Creates a request without options. */
  public TextRequest(
      String prompt, int maxTokens, Sampling sampling, List<String> stop, Duration deadline) {
    this(prompt, maxTokens, sampling, stop, deadline, Options.NONE);
  }

  /**
   * How a token is chosen.
   *
   * @param temperature 0 for the most likely one; above, the larger the more random
   * @param topP choose among the most likely tokens that together have this probability; 1 for all
   * @param seed equal seeds give equal texts
   * @param adjustments changes of the logits, and further limits
   */
  public record Sampling(float temperature, float topP, long seed, Adjustments adjustments) {
    /** Always the most likely token. */
    public static final Sampling GREEDY = new Sampling(0, 1, 0);

    /** Creates one without adjustments. */
    public Sampling(float temperature, float topP, long seed) {
      this(temperature, topP, seed, Adjustments.NONE);
    }
  }

  /**
   * Changes of the logits before a token is chosen, which rank 0 makes ({@link HostChoice}).
   *
   * @param topK choose among this number of the most likely tokens; 0 for all
   * @param minP leave out tokens whose probability, relative to the most likely one's, is less
   * @param presencePenalty subtracted from the logits of tokens that the answer has
   * @param frequencyPenalty the same, for each time that the answer has them
   * @param bias added to the logits of these tokens
   */
  public record Adjustments(
      int topK,
      float minP,
      float presencePenalty,
      float frequencyPenalty,
      Map<Integer, Float> bias) {
    /** Changes nothing. */
    public static final Adjustments NONE = new Adjustments(0, 0, 0, 0, Map.of());
  }

  /**
   * Options that most requests do not set.
   *
   * @param promptTokens the prompt's tokens; empty if the prompt is a text
   * @param echo whether the answer begins with the prompt
   * @param logprobs for how many of the most likely tokens the answer has probabilities, beside
   *     those of the chosen ones; -1 for none at all
   * @param stopTokens tokens that end the answer, beside the model's own
   * @param ignoreEnds whether the model's own end tokens do not end the answer
   * @param minTokens number of tokens before which no end token is chosen
   */
  public record Options(
      List<Integer> promptTokens,
      boolean echo,
      int logprobs,
      Set<Integer> stopTokens,
      boolean ignoreEnds,
      int minTokens) {
    /** A text as the prompt; the model decides when the answer ends. */
    public static final Options NONE = new Options(List.of(), false, -1, Set.of(), false, 0);
  }
}
