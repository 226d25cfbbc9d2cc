// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.engine;

import io.fluxccl.samples.inference.engine.TextRequest.Adjustments;
import io.fluxccl.samples.inference.engine.TextRequest.Sampling;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.List;
import java.util.PriorityQueue;

/**
 * Chooses tokens on rank 0, from the logits of the whole vocabulary, for requests that change
 * these. Without a change it chooses what the kernels choose ({@link Nucleus}). Temperature, {@code
 * minP}, {@code topK} and {@code topP} apply in this order.
 */
final class HostChoice {
  private HostChoice() {}

  /** The logarithm of a token's probability. */
  record Logprob(int token, double value) {}

  /**
   * Adds biases to logits, and subtracts penalties.
   *
   * @param answer the tokens chosen so far
   */
  static void adjust(float[] logits, Adjustments adjustments, int[] answer) {
    adjustments.bias().forEach((token, bias) -> logits[token] += bias);
    int[] sorted = answer.clone();
    Arrays.sort(sorted);
    for (int i = 0; i < sorted.length; i++) {
      boolean isFirst = i == 0 || sorted[i] != sorted[i - 1];
      logits[sorted[i]] -=
          adjustments.frequencyPenalty() + (isFirst ? adjustments.presencePenalty() : 0);
    }
  }

  /** Excludes tokens from the choice. */
  static void exclude(float[] logits, Collection<Integer> tokens) {
    tokens.stream()
        .filter(token -> token < logits.length)
        .forEach(token -> logits[token] = Float.NEGATIVE_INFINITY);
  }

  /**
   * Returns the chosen token, or -1 if logits are not finite ({@link Nucleus#token}).
   *
   * @param logits adjusted; overwritten
   * @param position of the token before
   */
  static int choose(float[] logits, Sampling sampling, int position) {
    float temperature = sampling.temperature();
    boolean isRandom = temperature > 0;
    int limit = isRandom ? narrow(logits, sampling) : Nucleus.FARTHEST;
    float most = most(logits);
    long best = Long.MIN_VALUE;
    for (int token = 0; token < logits.length; token++) {
      float score = logits[token];
      if (isRandom && Nucleus.distance(most, score, temperature) > limit) {
        continue;
      }
      if (isRandom) {
        score = score / temperature + Nucleus.gumbel(sampling.seed(), position, token);
      }
      best = Math.max(best, Nucleus.candidate(score, token));
    }
    return Nucleus.token(best);
  }

  /** Excludes tokens by minP and topK, and returns the largest distance that topP leaves. */
  private static int narrow(float[] logits, Sampling sampling) {
    float temperature = sampling.temperature();
    int topK = sampling.adjustments().topK();
    float most = most(logits);
    double least = Math.log(sampling.adjustments().minP());
    long last =
        topK > 0 && topK < logits.length ? best(logits, topK).get(topK - 1) : Long.MIN_VALUE;
    for (int token = 0; token < logits.length; token++) {
      float logit = logits[token];
      if ((logit - most) / temperature < least || Nucleus.candidate(logit, token) < last) {
        logits[token] = Float.NEGATIVE_INFINITY;
      }
    }
    if (sampling.topP() >= 1) {
      return Nucleus.FARTHEST;
    }
    long[] masses = new long[Nucleus.FARTHEST + 1];
    double all = 0;
    for (float logit : logits) {
      long mass = Nucleus.mass(most, logit, temperature);
      masses[Nucleus.distance(most, logit, temperature)] += mass;
      all += mass;
    }
    long reach = (long) (all * sampling.topP());
    int distance = 0;
    for (long sum = masses[0]; sum < reach && distance < Nucleus.FARTHEST; ) {
      sum += masses[++distance];
    }
    return distance;
  }

  private static float most(float[] logits) {
    float most = Float.NEGATIVE_INFINITY;
    for (float logit : logits) {
      most = Math.max(most, logit);
    }
    return most;
  }

  /** Returns the {@code count} best candidates, best first. */
  private static List<Long> best(float[] logits, int count) {
    PriorityQueue<Long> kept = new PriorityQueue<>();
    for (int token = 0; token < logits.length && count > 0; token++) {
      long candidate = Nucleus.candidate(logits[token], token);
      if (kept.size() == count && candidate > kept.peek()) {
        kept.remove();
      }
      if (kept.size() < count) {
        kept.add(candidate);
      }
    }
    List<Long> best = new ArrayList<>(kept);
    best.sort(Collections.reverseOrder());
    return best;
  }

  /** Returns the logarithms of the probabilities of a token, then of the most likely ones. */
  static List<Logprob> logprobs(float[] logits, int token, int count) {
    float most = most(logits);
    double sum = 0;
    for (float logit : logits) {
      sum += Math.exp(logit - most);
    }
    double all = most + Math.log(sum);
    List<Logprob> found = new ArrayList<>();
    found.add(new Logprob(token, logits[token] - all));
    for (long each : best(logits, Math.min(count, logits.length))) {
      int other = Nucleus.tokenOf(each);
      found.add(new Logprob(other, logits[other] - all));
    }
    return found;
  }
}
