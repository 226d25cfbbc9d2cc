// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import static io.fluxccl.bootstrap.BootstrapFrameCodec.MAC_BYTES;
import static io.fluxccl.bootstrap.BootstrapFrameCodec.NONCE_BYTES;

import io.fluxccl.bootstrap.BootstrapFrameCodec.Limits;
import io.fluxccl.bootstrap.Roster.Nonce;
import java.net.InetSocketAddress;
import java.util.List;

/**
 * The messages between two processes of a job, and between a job and a dump client. On the wire, a
 * frame is its length (4 bytes, big endian), a byte for its type, and its fields in the order of
 * declaration; {@link BootstrapFrameCodec} writes them.
 */
sealed interface BootstrapFrame
    permits BootstrapFrame.Greeting,
        BootstrapFrame.Hello,
        BootstrapFrame.Proof,
        BootstrapFrame.Verdict,
        BootstrapFrame.DumpRequest,
        BootstrapFrame.DumpReply,
        BootstrapFrame.DumpMembers,
        BootstrapFrame.DumpMissing,
        BootstrapFrame.FormedAsProposed,
        BootstrapFrame.Goodbye,
        BootstrapFrame.Confirm,
        BootstrapFrame.Resume,
        BootstrapFrame.Attach,
        BootstrapFrame.Data,
        JoinMessage {
  byte[] NO_BYTES = {};

  // ---- the handshake, before a socket is trusted ----

  /** The acceptor's first frame. */
  record Greeting(@Limits(most = NONCE_BYTES) byte[] nonce) implements BootstrapFrame {}

  /** The connector's first frame, which carries its protocol version. */
  record Hello() implements BootstrapFrame {}

  /**
   * The connector's answer: its identity, and the proof that it knows the secret.
   *
   * @param address the listening address of the connector's process; {@link Links#NOWHERE} for a
   *     dump client
   * @param id of the connector's process; 0 for a dump client
   * @param target the id of the process that it wants, or 0 for any
   */
  record Proof(
      LinkKind kind,
      @Limits InetSocketAddress address,
      long id,
      long target,
      @Limits(most = NONCE_BYTES) byte[] nonce,
      @Limits(most = MAC_BYTES) byte[] mac)
      implements BootstrapFrame {
    Proof withMac(byte[] newMac) {
      return new Proof(kind, address, id, target, nonce, newMac);
    }
  }

  /**
   * The acceptor's decision, with its own proof; a refusal for {@link Admission#WRONG_SECRET} has
   * none.
   *
   * @param address the listening address of the acceptor's process
   * @param id of that process
   */
  record Verdict(
      Admission admission,
      @Limits InetSocketAddress address,
      long id,
      @Limits(most = MAC_BYTES) byte[] mac)
      implements BootstrapFrame {
    Verdict withMac(byte[] newMac) {
      return new Verdict(admission, address, id, newMac);
    }
  }

  // ---- dumps ----

  /** Requests a dump from a process; see the other frames of dumps for the answers. */
  record DumpRequest(boolean all) implements BootstrapFrame {}

  /** The encoded {@link io.fluxccl.trace.Snapshot} of a rank. */
  record DumpReply(byte[] content) implements BootstrapFrame {}

  /** The members of the job's group, which a dump client asks next. */
  record DumpMembers(Roster roster) implements BootstrapFrame {}

  /** No group has formed; these ranks have not joined. */
  record DumpMissing(List<Integer> missing) implements BootstrapFrame {}

  // ---- a link ----

  /** The last frame of a side that leaves in good order. */
  record Goodbye() implements BootstrapFrame {}

  /** The number of frames received that count; see {@link Link}. */
  record Confirm(long received) implements BootstrapFrame {}

  /**
   * Resumes a session on another connection; the acceptor answers with the same frame type.
   *
   * @param session the connector's nonce of the session's first connection; zeros if the session
   *     has ended
   * @param received the number of frames received, as in {@link Confirm}
   */
  record Resume(@Limits(most = NONCE_BYTES) byte[] session, long received)
      implements BootstrapFrame {}

  /** The connector has received the verdict: from now on, a lost connection is resumed. */
  record Attach() implements BootstrapFrame {}

  /**
   * A message between members of a group; see {@link StreamKey}.
   *
   * @param roster of the group
   */
  record Data(
      Nonce roster, long group, StreamKey.Space space, long channel, int sequence, byte[] message)
      implements BootstrapFrame {
    static Data of(Nonce roster, StreamKey key, byte[] message) {
      return new Data(roster, key.group(), key.space(), key.channel(), key.sequence(), message);
    }

    StreamKey key(int sender) {
      return new StreamKey(group, sender, space, channel, sequence);
    }
  }

  /** A {@link JoinMessage.Formed} with the roster of the last proposal on the same link. */
  record FormedAsProposed(Roster.Nonce roster) implements BootstrapFrame {}

  /** The purpose of a connection. */
  enum LinkKind {
    /** The first connection of a {@link Link}. */
    LINK,
    /** Replaces the connection of a link, which was lost. */
    RESUME,
    /** Carries one dump request. */
    INQUIRY
  }

  /** The acceptor's decision on a connector. */
  enum Admission {
    WELCOME,
    /** The connector has not proved that it knows the secret. */
    WRONG_SECRET,
    /** The acceptor is not the process that the connector wants. */
    OTHER_PROCESS,
    /** There is a link between the two processes already. */
    DUPLICATE,
    /** The acceptor's process leaves the job. */
    LEAVING
  }
}
