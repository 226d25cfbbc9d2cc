// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import io.fluxccl.ErrorCode;
import io.fluxccl.FluxCclException;
import java.net.InetSocketAddress;
import java.util.List;

/**
 * The messages between ranks and their root. On the wire each has its length in front (4 bytes, big
 * endian), then a byte for the type and the fields in their order here; see {@link
 * BootstrapFrameCodec}.
 */
sealed interface BootstrapFrame {

  // ---- the handshake, before a socket is trusted ----

  /** The acceptor's first frame. */
  record Greeting(byte[] nonce) implements BootstrapFrame {}

  /** The connector's first frame: it shows the acceptor which version the connector has. */
  record Hello() implements BootstrapFrame {}

  /**
   * The connector's answer: its rank, and the proof that it knows the secret.
   *
   * @param target the rank it wants, or -1 for the root
   */
  record Proof(LinkKind kind, int rank, int nRanks, int target, byte[] nonce, byte[] mac)
      implements BootstrapFrame {
    Proof withMac(byte[] newMac) {
      return new Proof(kind, rank, nRanks, target, nonce, newMac);
    }
  }

  /**
   * The acceptor's decision, with its own proof; a refusal for {@link Admission#WRONG_SECRET} has
   * none.
   *
   * @param expectedRanks how many ranks the job has
   */
  record Verdict(Admission admission, int expectedRanks, byte[] mac) implements BootstrapFrame {}

  // ---- a rank to its root ----

  /**
   * A rank registers: where it listens, and on which host and in which process it is.
   *
   * @param process for people: the process id and the host's name
   */
  record Register(Member member, boolean hostsRoot, String process) implements BootstrapFrame {}

  /** The answer to {@link Ping}, and the sign of life of a rank that has joined. */
  record Pong() implements BootstrapFrame {}

  // ---- the root to its ranks ----

  /** Ranks that have not registered; those that never did come before those that gave up. */
  record Waiting(List<Integer> missing) implements BootstrapFrame {}

  /**
   * All ranks have registered.
   *
   * @param jobId random; the key of the connections between ranks is derived from it
   * @param rootHost the rank whose process hosts the root, or -1
   * @param rootProcess the process of that rank, as in {@link Register}, or empty
   * @param members by rank
   */
  record Peers(byte[] jobId, int rootHost, String rootProcess, List<Member> members)
      implements BootstrapFrame {}

  /** Asks a rank for a {@link Pong}. */
  record Ping() implements BootstrapFrame {}

  /** All ranks that have not answered for a while. */
  record Silent(List<Integer> ranks) implements BootstrapFrame {}

  // ---- a meeting ----

  /**
   * A process waits for the next generation.
   *
   * @param generation the last one that it was a member of, or 0
   * @param previousRank its rank in that, or -1
   * @param previousSize how many ranks that had
   * @param lost ranks of that which are known not to come
   * @param least the fewest ranks with which it goes on
   * @param patienceMillis how long it waits for more
   */
  record Attend(
      long generation,
      int previousRank,
      int previousSize,
      List<Integer> lost,
      int least,
      long patienceMillis)
      implements BootstrapFrame {}

  /**
   * A generation begins.
   *
   * @param rank the receiver's
   * @param previousRanks by rank, the rank in the generation before, or -1
   * @param jobId random; the key of the generation is derived from it
   * @param root where its members register
   */
  record Convened(
      long generation, int rank, List<Integer> previousRanks, byte[] jobId, InetSocketAddress root)
      implements BootstrapFrame {}

  /**
   * To a process that waits: a generation runs. To a member of that: it has room, and one waits.
   */
  record Spare() implements BootstrapFrame {}

  // ---- somebody who looks at the job ----

  /** Asks a rank for its {@link Report}, a root for {@link Peers}, a meeting for the root. */
  record Inquire(boolean all) implements BootstrapFrame {}

  /** Answers with what a rank does; see {@link io.fluxccl.trace.RankReport}. */
  record Report(byte[] content) implements BootstrapFrame {}

  // ---- between any two ----

  /** The last frame of a side that leaves in good order. */
  record Goodbye() implements BootstrapFrame {}

  /** Ranks that have left in good order. */
  record Departed(List<Integer> ranks) implements BootstrapFrame {}

  /** The job has failed. */
  record Failed(ErrorCode code, int rank, String message) implements BootstrapFrame {
    static Failed of(FluxCclException reason) {
      return new Failed(
          reason.code(),
          reason.rank(),
          BootstrapFrameCodec.shortened(String.valueOf(reason.getMessage())));
    }

    FluxCclException toException() {
      return FluxCclException.of(code, rank, message);
    }
  }

  /** How many frames have arrived, of those that count; see {@link ResumingSession}. */
  record Confirm(long received) implements BootstrapFrame {}

  /**
   * Goes on with a session on another connection; the acceptor answers with the same.
   *
   * @param session the connector's nonce of its first connection; zeros for one that has ended
   * @param received how many frames have arrived, of those that count
   */
  record Resume(byte[] session, long received) implements BootstrapFrame {}

  // ---- one rank to another ----

  /** The connector has received the verdict: from now on a lost connection means a lost rank. */
  record Attach() implements BootstrapFrame {}

  /**
   * A message; see {@link StreamKey}. On a connection with the root it is from or to the rank that
   * hosts the root.
   */
  record Data(long group, StreamKey.Space space, long channel, int sequence, Message message)
      implements BootstrapFrame {
    static Data of(StreamKey key, Message message) {
      return new Data(key.group(), key.space(), key.channel(), key.sequence(), message);
    }

    StreamKey key(int sender) {
      return new StreamKey(group, sender, space, channel, sequence);
    }
  }

  /** The purpose of a connection. */
  enum LinkKind {
    ROOT,
    PEER,
    MEETING,
    /** The connection of a session that was reset goes on with another one. */
    RESUME,
    /** It asks what the job does, and is none of its ranks. */
    INQUIRY
  }

  /** The acceptor's decision on a connector. */
  enum Admission {
    WELCOME,
    /** A rank is connected. */
    DUPLICATE_RANK,
    /** All ranks have registered. */
    JOB_COMPLETE,
    /** The connector expects another number of ranks. */
    WRONG_RANK_COUNT,
    /** The job has no such rank. */
    RANK_OUT_OF_RANGE,
    /** The connector has not proved that it knows the secret. */
    WRONG_SECRET
  }

  /** One rank as the other ranks know it. */
  record Member(InetSocketAddress address, long hostHash, long processHash) {}
}
