package io.fluxccl.bootstrap;

import io.fluxccl.FluxCclException;

/**
 * One message, or the news that there will be none because a rank left before it gave its part.
 *
 * @param leftRank the rank that left, or {@link FluxCclException#NO_RANK} for a message
 */
record Message(byte[] bytes, int leftRank) {
  static final byte[] NO_BYTES = {};

  static Message of(byte[] bytes) {
    return new Message(bytes, FluxCclException.NO_RANK);
  }

  static Message brokenBy(int leftRank) {
    return new Message(NO_BYTES, leftRank);
  }

  boolean broken() {
    return leftRank != FluxCclException.NO_RANK;
  }

  Message copy() {
    return new Message(bytes.clone(), leftRank);
  }
}
