// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

/**
 * Messages of one key arrive in order; keys are independent of each other.
 *
 * @param group the id of a sub-group while the job's bootstrap carries its message; otherwise 0
 * @param peer the rank that sends
 * @param space the kind of operation that the message belongs to
 * @param channel the tag, or the hash of the members, by {@code space}; otherwise 0
 * @param sequence the number of the collective operation; 0 for {@link Space#TAGGED}
 */
record StreamKey(long group, int peer, Space space, long channel, int sequence) {
  /** The group of messages that belong to all ranks. */
  static final long ALL = 0;

  StreamKey(int peer, Space space, long channel, int sequence) {
    this(ALL, peer, space, channel, sequence);
  }

  StreamKey from(int otherPeer) {
    return new StreamKey(group, otherPeer, space, channel, sequence);
  }

  /**
   * Returns this key with another group and peer, for a message that passes between groups or
   * ranks.
   */
  StreamKey in(long otherGroup, int otherPeer) {
    return new StreamKey(otherGroup, otherPeer, space, channel, sequence);
  }

  enum Space {
    TAGGED,
    GATHER,
    GROUP,
    BROADCAST,
    EXCHANGE,
    /** The gather by which ranks form sub-groups. */
    SPLIT,
    /** The last message of a rank to the others of its sub-group. */
    LEFT
  }
}
