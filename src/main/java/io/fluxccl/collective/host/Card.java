package io.fluxccl.collective.host;

/**
 * What a rank says of its buffers before a large call, so that both ends of a pair come to the same
 * decision: who can reach what. Mutable, one for each peer.
 */
final class Card {
  /** Not registered. */
  static final int NONE = -1;

  /** Input and output are the same memory, and more than one peer's business. */
  static final int IN_PLACE = 1;

  /** {@link #input} goes with the card. */
  static final int INPUT_SHOWN = 2;

  /** {@link #output} does. */
  static final int OUTPUT_SHOWN = 4;

  /** Bytes of the message to the peer; less than 0 if what was read is no card but such a piece. */
  long sent;

  /** Bytes of the message from the peer. */
  long expected;

  int inputId = NONE;
  int outputId = NONE;
  long inputOffset;
  long outputOffset;
  int flags;

  /** The buffers that are not registered, once they have been used before. */
  final Shown input = new Shown();

  final Shown output = new Shown();

  /**
   * Whether the rank whose card this is can reach what is registered under an id: ranks know the
   * addresses of the registrations that their own buffers lie in.
   */
  boolean reaches(int id) {
    return id != NONE && (inputId == id || outputId == id);
  }

  /** Whether each of two ranks sends what the other expects. */
  boolean agreesWith(Card other) {
    return sent == other.expected && expected == other.sent;
  }

  /** Notes which buffers are shown. */
  void countShown() {
    flags |= (input.isThere() ? INPUT_SHOWN : 0) | (output.isThere() ? OUTPUT_SHOWN : 0);
  }

  boolean isInPlace() {
    return (flags & IN_PLACE) != 0;
  }
}
