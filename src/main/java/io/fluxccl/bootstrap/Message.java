package io.fluxccl.bootstrap;

/**
 * One message, or, when {@code broken}, the news that there will be none because rank {@code
 * culprit} left before it gave its part.
 */
record Message(byte[] bytes, boolean broken, int culprit) {
  static final byte[] NO_BYTES = {};

  static Message of(byte[] bytes) {
    return new Message(bytes, false, -1);
  }

  static Message brokenBy(int culprit) {
    return new Message(NO_BYTES, true, culprit);
  }
}
