// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import io.fluxccl.ErrorCode;
import io.fluxccl.FluxCclException;
import java.net.InetSocketAddress;
import java.util.List;

/**
 * The messages between ranks and their root. On the wire, a frame is its length (4 bytes, big
 * endian), a byte for its type, and its fields in the order of declaration; see {@link
 * BootstrapFrameCodec}.
 */
sealed interface BootstrapFrame {

  // ---- the handshake, before a socket is trusted ----

  /** The acceptor's first frame. */
  record Greeting(byte[] nonce) implements BootstrapFrame {}

  /** The connector's first frame, which carries its protocol version. */
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
   * @param process a description for messages: the process id and the host's name
   */
  record Register(Member member, boolean hostsRoot, String process) implements BootstrapFrame {}

  /** The answer to {@link Ping}, and the periodic heartbeat of a rank after set-up. */
  record Pong() implements BootstrapFrame {}

  // ---- the root to its ranks ----

  /** Ranks that have not registered: first those that never did, then those that gave up. */
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

  /** Requests a {@link Pong} from a rank. */
  record Ping() implements BootstrapFrame {}

  /** All ranks that are silent now. */
  record Silent(List<Integer> ranks) implements BootstrapFrame {}

  // ---- a rendezvous ----

  /**
   * Requests membership in the next generation.
   *
   * @param generation the sender's latest generation, or 0
   * @param previousRank the sender's rank in that generation, or -1
   * @param previousSize the number of ranks of that generation
   * @param lost ranks of that generation that are known not to join
   * @param least the fewest ranks with which the sender continues
   * @param patienceMillis how long the sender waits for further ranks
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
   * A generation has formed.
   *
   * @param rank the receiver's
   * @param previousRanks for each rank, its rank in the previous generation, or -1
   * @param jobId random; the key of the generation is derived from it
   * @param root the address at which its members register
   */
  record Convened(
      long generation, int rank, List<Integer> previousRanks, byte[] jobId, InetSocketAddress root)
      implements BootstrapFrame {}

  /**
   * Informs a waiting process that a generation is running, or a member that a process waits for a
   * free rank.
   */
  record Spare() implements BootstrapFrame {}

  // ---- dumps ----

  /**
   * Requests a rank's {@link DumpReply}, a root's {@link Peers}, or the {@link Convened} of a
   * generation.
   */
  record DumpRequest(boolean all) implements BootstrapFrame {}

  /** The encoded {@link io.fluxccl.trace.Snapshot} of a rank. */
  record DumpReply(byte[] content) implements BootstrapFrame {}

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

  /**
   * The number of frames received, except heartbeats and confirmations; see {@link
   * ResumingSession}.
   */
  record Confirm(long received) implements BootstrapFrame {}

  /**
   * Resumes a session on another connection; the acceptor answers with the same frame type.
   *
   * @param session the connector's nonce of the session's first connection; zeros if the session
   *     has ended
   * @param received the number of frames received, as in {@link Confirm}
   */
  record Resume(byte[] session, long received) implements BootstrapFrame {}

  // ---- one rank to another ----

  /** The connector has received the verdict: from now on, a lost connection means a dead rank. */
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
    /** Replaces the connection of a session, which was reset. */
    RESUME,
    /** Carries one dump request. */
    INQUIRY
  }

  /** The acceptor's decision on a connector. */
  enum Admission {
    WELCOME,
    /** The rank is connected already. */
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
