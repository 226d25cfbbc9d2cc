// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import io.fluxccl.ErrorCode;
import io.fluxccl.FluxCclException;
import io.fluxccl.bootstrap.BootstrapFrameCodec.Limits;
import io.fluxccl.bootstrap.Roster.Contact;
import io.fluxccl.bootstrap.Roster.Nonce;
import java.net.InetSocketAddress;
import java.util.List;

/** The messages of the join protocol; see {@link Coordinator} for their order. */
sealed interface JoinMessage extends BootstrapFrame {
  /**
   * Requests a rank in the next epoch, and promises to accept no lower term.
   *
   * @param epoch the sender's last epoch; for a newcomer, the last one that formed without it, or 0
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

  /** Announces that an epoch has formed without the receiver, and a member of it. */
  record Missed(@Limits long epoch, InetSocketAddress member) implements JoinMessage {}

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
