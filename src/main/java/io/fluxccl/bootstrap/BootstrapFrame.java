package io.fluxccl.bootstrap;

import io.fluxccl.ErrorCode;
import io.fluxccl.FluxCclException;
import java.net.InetSocketAddress;
import java.util.List;

/**
 * What travels between ranks and their root. On the wire each is a 4-byte length of what follows, a
 * byte for the type and the fields in their order here, big endian; see {@link
 * BootstrapFrameCodec}.
 */
sealed interface BootstrapFrame {

  // ---- the handshake, before a socket is trusted ----

  /** The acceptor's first words. */
  record Greeting(byte[] nonce) implements BootstrapFrame {}

  /**
   * The connector's answer: who it is, and that it knows the secret.
   *
   * @param target the rank it wants, or -1 for the root
   */
  record Proof(LinkKind kind, int rank, int nRanks, int target, byte[] nonce, byte[] mac)
      implements BootstrapFrame {}

  /**
   * The acceptor's decision, with its own proof.
   *
   * @param detail what {@code admission} says it is
   */
  record Verdict(Admission admission, int detail, byte[] mac) implements BootstrapFrame {}

  // ---- a rank to its root ----

  /** A rank comes: where it listens, and on which host and process it is. */
  record Register(Member member, boolean hostsRoot) implements BootstrapFrame {}

  /** The answer to {@link Ping}. */
  record Pong() implements BootstrapFrame {}

  // ---- the root to its ranks ----

  /** Ranks that have not come yet, those that never came before those that gave up. */
  record Waiting(List<Integer> missing) implements BootstrapFrame {}

  /**
   * All ranks have come.
   *
   * @param jobId random; the key of the links between ranks is made of it
   * @param rootHost the rank whose process hosts the root, or -1
   * @param members by rank
   */
  record Peers(byte[] jobId, int rootHost, List<Member> members) implements BootstrapFrame {}

  /** Are you there? */
  record Ping() implements BootstrapFrame {}

  /** All ranks that have not answered for a while. */
  record Silent(List<Integer> ranks) implements BootstrapFrame {}

  // ---- between any two ----

  /** The last frame of who leaves in good order. */
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

  // ---- one rank to another ----

  /** The connector has seen the verdict: from now on a lost connection means a lost rank. */
  record Attach() implements BootstrapFrame {}

  /** A message; see {@link StreamKey}. */
  record Data(StreamKey.Space space, long channel, int sequence, Message message)
      implements BootstrapFrame {}

  /** What a connection is for. */
  enum LinkKind {
    ROOT,
    PEER
  }

  /** What the acceptor says to a connector that knows the secret. */
  enum Admission {
    WELCOME,
    /** That rank is connected already. */
    DUPLICATE_RANK,
    /** All ranks have come. */
    JOB_COMPLETE,
    /** detail: how many ranks the job has. */
    WRONG_RANK_COUNT,
    /** detail: how many ranks the job has. */
    RANK_OUT_OF_RANGE
  }

  /** One rank as the others see it. */
  record Member(InetSocketAddress address, long hostHash, long processHash) {}
}
