// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.engine;

/**
 * The choice of a token, alike on every kind of device. A token's distance is the logit of the most
 * likely token minus its own, divided by the temperature, in steps of 1/2048, at most {@link
 * #FARTHEST}. The nucleus is the set of tokens up to the distance at which their probabilities add
 * up to topP. The token of the nucleus with the largest logit plus Gumbel noise wins. This chooses
 * each with its probability and needs no sum over the ranks.
 */
final class Nucleus {
  static final int BINS = 256;
  static final int FARTHEST = BINS * BINS - 1;
  private static final float STEPS = 2048;
  private static final int INFINITE = 0x7f800000;
  private static final double FIXED_POINT = 1L << 40;

  private Nucleus() {}

  static int distance(float most, float logit, float temperature) {
    return (int) Math.min(FARTHEST, (most - logit) / temperature * STEPS);
  }

  /** Returns the probability at a distance, relative to the most likely token's, in fixed point. */
  static long mass(float most, float logit, float temperature) {
    return (long) (Math.exp((logit - most) / (double) temperature) * FIXED_POINT);
  }

  /** Returns the first bin with which the masses reach a share of their sum, or the last one. */
  static int firstBin(long[] masses, long reach) {
    long sum = 0;
    for (int bin = 0; bin < BINS - 1; bin++) {
      sum += masses[bin];
      if (sum >= reach) {
        return bin;
      }
    }
    return BINS - 1;
  }

  /** Returns noise that depends on a request's seed, the token's position and its number only. */
  static float gumbel(long seed, int position, int token) {
    long mixed = seed * 0x9e3779b97f4a7c15L + ((long) position << 32 | token);
    mixed = (mixed ^ (mixed >>> 30)) * 0xbf58476d1ce4e5b9L;
    mixed = (mixed ^ (mixed >>> 27)) * 0x94d049bb133111ebL;
    mixed ^= mixed >>> 31;
    double uniform = ((mixed >>> 12) + 0.5) / (1L << 52);
    return (float) -Math.log(-Math.log(uniform));
  }

  /** Returns a token and its score as one number; the better score is the larger number. */
  static long candidate(float score, int token) {
    int bits = Float.floatToIntBits(score); // of NaN more than of any number
    // As an integer, ordered like the floats.
    int ordered = bits ^ (bits >> 31 & Integer.MAX_VALUE);
    // Of equal scores the lower token wins, on whatever rank it is.
    return (long) ordered << 32 | Integer.MAX_VALUE - token;
  }

  /** Returns the token of the best candidate; -1 if its score is no finite number. */
  static int token(long candidate) {
    int ordered = (int) (candidate >> 32);
    boolean isFinite = ordered < INFINITE && ordered > ~INFINITE;
    return isFinite ? tokenOf(candidate) : -1;
  }

  static int tokenOf(long candidate) {
    return Integer.MAX_VALUE - (int) candidate;
  }
}
