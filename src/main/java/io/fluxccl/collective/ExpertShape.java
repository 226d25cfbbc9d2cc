// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.DataType;
import io.fluxccl.Experimental;
import io.fluxccl.InvalidUsage;
import io.fluxccl.Text;

/**
 * The shape of a mixture of experts, the same on every rank except for the capacity.
 *
 * @param tokens the tokens that each rank gives, 1 to {@link #MOST_TOKENS}. A rank with fewer gives
 *     no expert to the unused tokens
 * @param topK the experts of a token, 1 to {@link #MOST_PER_TOKEN}
 * @param experts all experts, at most {@link #MOST_EXPERTS}. Rank r of n has the experts from r x
 *     experts / n on; n divides the number of experts
 * @param hidden the values of a token: a multiple of 8, of 128 for FLOAT8_E4M3
 * @param type of the tokens that are dispatched: {@link DataType#BFLOAT16}, or {@link
 *     DataType#FLOAT8_E4M3} with a scale, a float, for every 128 values of a token, as in DeepEP.
 *     Combine takes BFLOAT16
 * @param capacity the most tokens that this rank receives, 1 or more; n x tokens always suffice
 */
@Experimental
public record ExpertShape(
    int tokens, int topK, int experts, int hidden, DataType type, int capacity) {
  /** The most tokens of a rank in one call. */
  public static final int MOST_TOKENS = 4096;

  /** The most experts of a token. */
  public static final int MOST_PER_TOKEN = 32;

  /** The most experts of a job. */
  public static final int MOST_EXPERTS = 1024;

  /** Values of FLOAT8_E4M3 that share a scale. */
  public static final int SCALE_GROUP = 128;

  private static final int MOST_HIDDEN = 1 << 16;
  private static final int ALIGNMENT = 8;

  /** Refuses a shape that is not as described. */
  public ExpertShape {
    InvalidUsage.requireNonNull(type, "experts", "type");
    requireWithin("tokens", tokens, MOST_TOKENS);
    requireWithin("topK", topK, MOST_PER_TOKEN);
    requireWithin("experts", experts, MOST_EXPERTS);
    requireWithin("hidden", hidden, MOST_HIDDEN);
    requireWithin("capacity", capacity, Integer.MAX_VALUE / MOST_PER_TOKEN);
    if (type != DataType.BFLOAT16 && type != DataType.FLOAT8_E4M3) {
      throw InvalidUsage.of("experts type=%s; give BFLOAT16 or FLOAT8_E4M3", type);
    }
    int unit = type == DataType.BFLOAT16 ? ALIGNMENT : SCALE_GROUP;
    if (hidden % unit != 0) {
      throw InvalidUsage.of("experts hidden=%d; give a multiple of %d for %s", hidden, unit, type);
    }
  }

  private static void requireWithin(String name, int value, int most) {
    if (value < 1 || value > most) {
      throw InvalidUsage.of("experts %s=%d; give 1 to %d", name, value, most);
    }
  }

  /** Returns the bytes of a token's values when it is dispatched. */
  public int tokenBytes() {
    return hidden * type.size();
  }

  /** Returns the bytes of a token's values when it is combined. */
  public int combinedBytes() {
    return hidden * DataType.BFLOAT16.size();
  }

  /** Returns the bytes of a token's scales; 0 for BFLOAT16. */
  public int scaleBytes() {
    return type == DataType.BFLOAT16 ? 0 : hidden / SCALE_GROUP * Float.BYTES;
  }

  /** Returns the bytes of all tokens' experts, or weights. */
  long routingBytes() {
    return (long) tokens * topK * Integer.BYTES;
  }

  /** Returns the bytes of all received tokens' experts, or weights. */
  long receivedRoutingBytes() {
    return (long) capacity * topK * Integer.BYTES;
  }

  /** Returns the bytes of {@link ExpertBatch#plan}. */
  long planBytes(int nRanks) {
    return 3L * nRanks * ((tokens + Integer.SIZE - 1) / Integer.SIZE) * Integer.BYTES;
  }

  /** Returns what must be the same on every rank. */
  String signature() {
    return Text.of(
        "tokens=%d topK=%d experts=%d hidden=%d type=%s", tokens, topK, experts, hidden, type);
  }
}
