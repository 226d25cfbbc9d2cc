// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import static io.fluxccl.bootstrap.BootstrapFrameCodec.MAC_BYTES;
import static io.fluxccl.bootstrap.BootstrapFrameCodec.NONCE_BYTES;

import io.fluxccl.ErrorCode;
import io.fluxccl.FluxCclException;
import io.fluxccl.bootstrap.BootstrapFrameCodec.Limits;
import io.fluxccl.bootstrap.JoinRules.Ballot;
import io.fluxccl.bootstrap.Mailboxes.StreamKey;
import io.fluxccl.bootstrap.Roster.Contact;
import io.fluxccl.bootstrap.Roster.Nonce;
import io.fluxccl.bootstrap.Roster.Term;
import java.net.InetSocketAddress;
import java.util.List;

/**
 * The messages between two processes of a job, and between a job and a dump client. On the wire, a
 * frame is its length (4 bytes, big endian), a byte for its type, and its fields in the order of
 * declaration; {@link BootstrapFrameCodec} writes them.
 */
sealed interface BootstrapFrame {
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
   * @param resume the link to resume, or {@link Resume#NONE}
   */
  record Proof(
      LinkKind kind,
      @Limits InetSocketAddress address,
      long id,
      long target,
      @Limits(most = NONCE_BYTES) byte[] nonce,
      Resume resume,
      @Limits(most = MAC_BYTES) byte[] mac)
      implements BootstrapFrame {
    /** Returns what a connector is to prove, with a new nonce. */
    static Proof of(LinkKind kind, InetSocketAddress address, long id, long target, Resume resume) {
      return new Proof(kind, address, id, target, SessionKey.nonce(NONCE_BYTES), resume, NO_BYTES);
    }

    Proof withMac(byte[] newMac) {
      return new Proof(kind, address, id, target, nonce, resume, newMac);
    }
  }

  /**
   * The acceptor's decision, with its own proof; a refusal for {@link Admission#WRONG_SECRET} has
   * none.
   *
   * @param address the listening address of the acceptor's process
   * @param id of that process
   * @param received if it resumes a link, the number of frames received, as in {@link Confirm}
   */
  record Verdict(
      Admission admission,
      @Limits InetSocketAddress address,
      long id,
      long received,
      @Limits(most = MAC_BYTES) byte[] mac)
      implements BootstrapFrame {
    Verdict withMac(byte[] newMac) {
      return new Verdict(admission, address, id, received, newMac);
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
   * Names the link that a connector resumes.
   *
   * @param session the connector's nonce of the link's first connection
   * @param received the number of frames received, as in {@link Confirm}
   */
  record Resume(@Limits(most = NONCE_BYTES) byte[] session, long received) {
    static final Resume NONE = new Resume(new byte[NONCE_BYTES], 0);
  }

  /** The connector has received the verdict: from now on, a lost connection is resumed. */
  record Attach() implements BootstrapFrame {}

  /**
   * A message between members of a group; see {@link StreamKey}.
   *
   * @param roster of the group
   */
  record Data(Nonce roster, StreamKey key, byte[] message) implements BootstrapFrame {}

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
    /** There is no link that the connector could resume, or frames that it needs were dropped. */
    NO_LINK,
    /** The acceptor's process leaves the job. */
    LEAVING
  }

  /** The messages of the join protocol; see {@link Coordinator} for their order. */
  sealed interface JoinMessage extends BootstrapFrame {
    /**
     * Requests a rank in the next epoch, and promises to accept no lower term.
     *
     * @param epoch the sender's last epoch; for a newcomer, the last one that formed without it, or
     *     0
     * @param base the roster of that epoch; {@link Roster#NONE} for a newcomer
     * @param term the term under which the sender joins; its rank is the receiver's
     * @param ballot the ballot of the sender's host on the epoch after {@code base}
     * @param lost the ranks to which the sender attributes the failure of that epoch
     */
    record Join(
        Contact member,
        @Limits long epoch,
        Nonce base,
        Term term,
        Ballot ballot,
        JoinRequest request,
        List<Integer> lost)
        implements JoinMessage {
      boolean isNewcomer() {
        return base.equals(Roster.NONE.nonce());
      }
    }

    /**
     * Announces a coordinator. It answers {@link Join}, calls members that have not joined, and
     * extends the coordinator's lease.
     *
     * @param base the roster of the last epoch
     * @param standby whether a group is running, and the receiver waits for the next one
     * @param missing the ranks that have not joined
     * @param others addresses at which a newcomer finds the job if this coordinator is lost
     * @param note why no group forms now, or empty
     */
    record Waiting(
        Term term,
        Nonce base,
        boolean standby,
        List<Integer> missing,
        List<InetSocketAddress> others,
        String note)
        implements JoinMessage {}

    /** Names the coordinator of a term. */
    record Redirect(Term term, InetSocketAddress coordinator) implements JoinMessage {}

    /** Proposes a roster for the epoch after {@code base}. */
    record Propose(Term term, Nonce base, Roster roster) implements JoinMessage {}

    /** Accepts the proposal of a term. */
    record Accept(Term term) implements JoinMessage {}

    /** Refuses a message, because the sender has promised a higher term. */
    record Refuse(Term promised) implements JoinMessage {}

    /** Announces that the group of a roster has formed. */
    record Formed(Roster roster) implements JoinMessage {}

    /** Announces that an epoch has formed without the receiver. Lists members: first the sender. */
    record Missed(@Limits long epoch, List<InetSocketAddress> members) implements JoinMessage {}

    /** Ends the receiver's join. */
    record Rejected(Failure failure) implements JoinMessage {}

    /**
     * Shows that the sender is alive.
     *
     * @param epoch the sender's last epoch
     * @param silent the silent ranks; only from the watcher
     * @param left the ranks that have left; only from the watcher
     * @param newcomers whether processes wait for a free rank; only from the watcher
     */
    record Beat(
        @Limits long epoch, Nonce base, List<Integer> silent, List<Integer> left, boolean newcomers)
        implements JoinMessage {
      /** Returns the heartbeat of a process that is not the watcher. */
      static Beat of(Roster base) {
        return new Beat(base.epoch(), base.nonce(), List.of(), List.of(), false);
      }
    }

    /** Announces that a group has failed. */
    record Failed(Nonce base, Failure failure) implements JoinMessage {}

    /** Announces that ranks have left a group in good order. */
    record Departed(Nonce base, List<Integer> ranks) implements JoinMessage {}

    /** A failure, as it is sent. */
    record Failure(
        ErrorCode code,
        @Limits(least = FluxCclException.NO_RANK, most = BootstrapFrameCodec.LAST_RANK) int rank,
        String message) {
      /** Returns a failure whose message is truncated if it is too long to be sent. */
      static Failure of(FluxCclException reason) {
        String message = BootstrapFrameCodec.shortened(String.valueOf(reason.getMessage()));
        return new Failure(reason.code(), reason.rank(), message);
      }

      FluxCclException toException() {
        return FluxCclException.of(code, rank, message);
      }
    }
  }
}
