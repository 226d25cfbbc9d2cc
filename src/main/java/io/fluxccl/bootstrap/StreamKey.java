package io.fluxccl.bootstrap;

/**
 * Messages of one key arrive in order; keys are independent of each other.
 *
 * @param peer the rank that sends
 * @param space the kind of operation that the message belongs to
 * @param channel the tag, the hash of the members or the root of the broadcast, by {@code space}
 * @param sequence the number of the collective operation; 0 for {@link Space#TAGGED}
 */
record StreamKey(int peer, Space space, long channel, int sequence) {
  StreamKey from(int otherPeer) {
    return new StreamKey(otherPeer, space, channel, sequence);
  }

  enum Space {
    TAGGED,
    GATHER,
    GROUP,
    BROADCAST,
    EXCHANGE
  }
}
