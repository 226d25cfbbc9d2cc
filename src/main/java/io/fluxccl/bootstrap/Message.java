// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import io.fluxccl.FluxCclException;
import java.util.List;

/**
 * One message, or a notice that a rank left before it sent its part.
 *
 * @param leftRank the rank that left, or {@link FluxCclException#NO_RANK} for a message
 */
record Message(byte[] bytes, int leftRank) {
  static final byte[] NO_BYTES = {};
  private static final int SHOWN_RANKS = 16;

  static Message of(byte[] bytes) {
    return new Message(bytes, FluxCclException.NO_RANK);
  }

  static Message brokenBy(int leftRank) {
    return new Message(NO_BYTES, leftRank);
  }

  boolean broken() {
    return leftRank != FluxCclException.NO_RANK;
  }

  /** Returns ranks for an error: the first ones, and the number of the others. */
  static String describe(List<Integer> ranks) {
    int more = ranks.size() - SHOWN_RANKS;
    return more <= 0 ? ranks.toString() : ranks.subList(0, SHOWN_RANKS) + " and " + more + " more";
  }

  Message copy() {
    return new Message(bytes.clone(), leftRank);
  }
}
