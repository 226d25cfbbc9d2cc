// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import io.fluxccl.FluxCclException;
import io.fluxccl.RemoteFailure;
import io.fluxccl.TransportFailure;
import io.fluxccl.concurrent.RecurringWarning;
import java.util.concurrent.TimeUnit;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Resumes a connection after its link was lost: gets another link, and resends on it the messages
 * that the peer has not received in full. Gives up when the peer's end is closed, or when the time
 * limit passes. Confined to the agent.
 */
final class Resumption {
  private static final Logger LOGGER = LoggerFactory.getLogger(Resumption.class);
  private static final RecurringWarning LOST = new RecurringWarning(LOGGER);

  /** The time after which a link that is not replaced is logged; a dead rank is known by then. */
  private static final long LOG_NS = TimeUnit.SECONDS.toNanos(1);

  /** The most corrupt messages in a row. */
  private static final int MOST_CORRUPT = 3;

  private final NetConnection connection;
  private final ResumableLink link;
  private final Receiver receiver;
  private final Sender sender;
  private final long limitNs;

  private LinkLiveness liveness;

  /** Why the link was lost. */
  private Throwable cause;

  /** The time since which nothing gets through. */
  private long sinceNs;

  // The numbers of messages received and confirmed when the link was replaced last; -1 before.
  private long receivedThen = -1;
  private long confirmedThen = -1;

  private int corrupt;
  private long count;

  /** The time at which the loss was noticed, and whether it was logged. */
  private long lostNs;

  private boolean logged;

  Resumption(NetConnection connection, ResumableLink link, Receiver receiver, Sender sender) {
    this.connection = connection;
    this.link = link;
    this.receiver = receiver;
    this.sender = sender;
    this.limitNs = TimeUnit.NANOSECONDS.convert(connection.config().resumeTimeout());
    this.liveness = new LinkLiveness(link::isAnswered, limitNs, System.nanoTime());
  }

  /** Returns how many times the link was lost. */
  long count() {
    return count;
  }

  /**
   * Checks a link in use.
   *
   * @return why the link is lost, or null if it is not
   */
  FluxCclException check(long nowNs) {
    if (link.isChallenged()) {
      return lost("rank " + connection.remoteRank() + " connects again");
    }
    boolean owes = sender.lastConfirmed() != receiver.received();
    boolean awaits = sender.awaitsConfirmation();
    LinkLiveness.Action action =
        liveness.check(nowNs, receiver.arrived(), receiver.isReading(), owes, awaits);
    if (action == LinkLiveness.Action.CONFIRM) {
      sender.confirm();
    }
    return action == LinkLiveness.Action.REPLACE
        ? lost("no answer for " + TimeUnit.NANOSECONDS.toSeconds(liveness.silentNs()) + " s")
        : null;
  }

  private TransportFailure lost(String how) {
    return new TransportFailure(connection.remoteRank(), how);
  }

  /**
   * Begins to replace the link, if the connection can resume after this loss.
   *
   * @param error the exception with which the link was lost
   * @return whether it begins; otherwise the connection is to fail
   */
  boolean begin(Throwable error) {
    boolean isCorrupt = error instanceof CorruptMessage;
    boolean isLost =
        isCorrupt || error instanceof RemoteFailure || error instanceof TransportFailure;
    if (!isLost || limitNs == 0) {
      return false;
    }
    long now = System.nanoTime();
    boolean heard = receiver.received() != receivedThen;
    if (heard || sender.confirmed() != confirmedThen || !sender.awaitsConfirmation()) {
      sinceNs = now - liveness.silentNs();
    }
    corrupt = (heard ? 0 : corrupt) + (isCorrupt ? 1 : 0);
    if (corrupt == MOST_CORRUPT || now - sinceNs > limitNs) {
      return false;
    }
    cause = error;
    count++;
    lostNs = now;
    logged = false;
    // No warning yet: the peer's process may have ended.
    LOGGER.debug("{}: the link is lost: {}", connection, error.getMessage());
    connection.interrupted(lost(connection + ": the link is down: " + error.getMessage()));
    receiver.interrupt();
    link.restart(receiver.received(), now);
    return true;
  }

  /**
   * Advances the replacement, and fails the connection if the link can't be replaced.
   *
   * @return whether the link is replaced
   */
  boolean poll() {
    long now = System.nanoTime();
    try {
      if (!link.poll(now)) {
        if (now - sinceNs > limitNs) {
          FluxCclException hindrance = link.hindrance();
          throw lost(
              "no other link within "
                  + TimeUnit.NANOSECONDS.toMillis(limitNs)
                  + " ms"
                  + (hindrance == null ? "" : ": " + hindrance.getMessage()));
        }
        if (!logged && now - lostNs > LOG_NS) {
          log("is being replaced");
        }
        return false;
      }
    } catch (FluxCclException e) {
      throw lost(cause.getMessage() + "; and the connection can't resume: " + e.getMessage());
    }
    sender.resume(link.peersCount());
    receivedThen = receiver.received();
    confirmedThen = sender.confirmed();
    liveness = new LinkLiveness(link::isAnswered, limitNs, now);
    connection.interrupted(null);
    if (!logged) {
      log("is replaced");
    }
    LOGGER.debug("{}: continues after {} ms", connection, (now - sinceNs) / 1_000_000);
    return true;
  }

  private void log(String state) {
    logged = true;
    LOST.warn(connection + ": the link was lost and " + state + ": " + cause.getMessage());
  }
}
