// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import io.fluxccl.DeviceFailure;
import io.fluxccl.FluxCclException;
import io.fluxccl.concurrent.Closing;
import java.util.concurrent.TimeUnit;

/**
 * Opens the link of one connection, moves data over it, and closes it after an exchange of final
 * messages. A link that can be replaced is replaced when it is lost. Confined to the agent.
 */
final class LinkWork {
  /** The longest wait for the exchange of final messages. */
  private static final long FAREWELL_NS = TimeUnit.MILLISECONDS.toNanos(500);

  /** The time without progress after which the health of a copying device is checked. */
  private static final long STALL_NS = TimeUnit.MILLISECONDS.toNanos(5);

  /** The state of a connection. */
  private enum State {
    WAITING,
    CONNECTING,
    OPEN,
    RESUMING,
    LEAVING,
    ENDED
  }

  private final NetConnection connection;
  private final Link link;
  private State state = State.WAITING;
  private EndpointWire peer;

  /** True if the agent's waiter wakes up when the link is ready. */
  private boolean watched;

  private Sender sender;
  private Receiver receiver;

  /** Replaces a lost link, and looks after it; null if the connection does not resume. */
  private Resumption resumption;

  /** The error that the final message reports to the peer; null for an orderly close. */
  private String errorForPeer;

  /** True if no message is received any more, because the peer violated the protocol. */
  private boolean receiveStopped;

  private boolean finalMessageSent;
  private long farewellStartNs;

  // The total work count, its value at the last device check, and the time of its last change seen.
  private long moves;
  private long seenMoves;
  private long movedNs;

  /** True while a check of the device's health is pending. */
  private volatile boolean asking;

  LinkWork(NetConnection connection, Link link) {
    this.connection = connection;
    this.link = link;
  }

  void connect(EndpointWire remote) {
    peer = remote;
    link.connect(remote.address());
    state = State.CONNECTING;
  }

  String missing() {
    return link.missing();
  }

  /** Advances the link in its current state, and returns the work count. */
  int doWork() {
    try {
      return switch (state) {
        case CONNECTING -> poll();
        case OPEN -> connection.hasPeerLeft() ? sayGoodbyeBack() : move();
        case RESUMING -> resume();
        case LEAVING -> sendFinalMessage();
        default -> 0;
      };
    } catch (ProtocolViolation e) {
      errorForPeer = e.getMessage();
      receiveStopped = true;
      connection.fail(errorForPeer, null);
    } catch (DeviceFailure e) {
      deviceFailed(e);
    } catch (Throwable e) {
      broken(e);
    }
    return 1;
  }

  private int poll() {
    if (!link.poll(System.nanoTime())) {
      return 0;
    }
    Staging staging = connection.context().staging();
    boolean wanted = connection.config().checksums() || peer.checksums();
    boolean checksums = wanted && link instanceof ResumableLink;
    sender = new Sender(connection.queue(), link, checksums, staging, connection::asked);
    boolean reachesGpus = connection.context().network().reachesGpus();
    MemoryTable memories = connection.context().memories();
    Heads heads = new Heads(link.capacity(), memories, reachesGpus, checksums);
    receiver = new Receiver(connection, link, heads, sender, staging);
    resumption =
        link instanceof ResumableLink resumable
            ? new Resumption(connection, resumable, receiver, sender)
            : null;
    open();
    connection.established();
    return 1;
  }

  private void open() {
    watched = link.watchedBy(connection.context().agent().waiter());
    state = State.OPEN;
  }

  /** Replaces the lost link, executes what arrived before, and returns the work count. */
  private int resume() {
    if (connection.failure() != null) {
      return 0;
    }
    int work = receiver.progressArrived();
    if (!resumption.poll()) {
      return work;
    }
    open();
    return work + 1;
  }

  /**
   * Confirms arrived messages, and detects a lost link that reports no error. The agent calls it
   * periodically.
   */
  void checkLink() {
    if (state != State.OPEN || resumption == null || connection.failure() != null) {
      return;
    }
    if (receiver.hasFinalMessage() && !connection.hasPeerLeft()) {
      // The peer may have closed the link; what it sent is being stored.
      return;
    }
    try {
      FluxCclException reason = resumption.check(System.nanoTime());
      if (reason != null) {
        broken(reason);
      }
    } catch (Throwable e) {
      broken(e);
    }
  }

  /**
   * Returns whether the agent may sleep until a socket is ready, because nothing needs to be
   * polled.
   */
  boolean isWatched() {
    return switch (state) {
      case CONNECTING, RESUMING, LEAVING -> false;
      case OPEN -> watched && !sender.isCopying() && !receiver.isCopying();
      case WAITING, ENDED -> true;
    };
  }

  boolean isConnecting() {
    return state == State.CONNECTING;
  }

  /** Returns whether posts are sent: false while they wait for a link, or for room. */
  boolean takesPosts() {
    return state == State.OPEN && sender.takesPosts();
  }

  private int move() {
    if (connection.failure() != null) {
      return 0;
    }
    int work = receiver.progress() + sender.progress(receiver.received());
    moves += work;
    return work;
  }

  /**
   * Checks the device's health if its copies make no progress, because a failed device never
   * reports copies as done. The agent calls it periodically.
   */
  void checkDevice() {
    if (state != State.OPEN || asking || !sender.isCopying() && !receiver.isCopying()) {
      seenMoves = -1;
      return;
    }
    long now = System.nanoTime();
    if (moves != seenMoves) {
      seenMoves = moves;
      movedNs = now;
    } else if (now - movedNs > STALL_NS) {
      seenMoves = -1;
      asking = true;
      connection.context().staging().ask(this::answered);
    }
  }

  private void answered(Throwable error) {
    asking = false;
    if (error != null) {
      FluxCclException reason = FluxCclException.from(error);
      connection.context().agent().execute(() -> deviceFailed(reason));
    }
  }

  /** Fails the connection because the device refuses copies or no longer executes them. */
  private void deviceFailed(FluxCclException reason) {
    errorForPeer = "its device failed: " + reason.getMessage();
    connection.deviceFailed(reason);
  }

  /**
   * Answers the peer's final message, so that the peer need not wait until this side closes.
   * Returns the work count.
   */
  private int sayGoodbyeBack() {
    finalMessageSent = finalMessageSent || sender.putFarewell(ControlMessage.GOODBYE, "");
    return sender.progressMessages(receiver.received());
  }

  private void broken(Throwable e) {
    boolean quiet = connection.hasPeerLeft() || state == State.LEAVING;
    boolean connecting = state == State.CONNECTING;
    if (state == State.OPEN && !quiet && !receiver.hasFinalMessage() && resumes(e)) {
      state = State.RESUMING;
      return;
    }
    try {
      if (!quiet) {
        // Fails before the link is closed: closing may throw errors that hide the cause.
        connection.fail(
            (connecting ? "was not connected: " : "the network failed: ")
                + FluxCclException.from(e).getMessage(),
            e);
      }
    } finally {
      breakOff();
    }
  }

  private boolean resumes(Throwable e) {
    return resumption != null && connection.failure() == null && resumption.begin(e);
  }

  /**
   * Closes the link of a connection that has failed or was closed. A link in use exchanges final
   * messages first.
   */
  void leave() {
    if (state == State.OPEN) {
      state = State.LEAVING;
      farewellStartNs = System.nanoTime();
    } else if (state != State.LEAVING) {
      breakOff();
      connection.ended();
    }
  }

  private int sendFinalMessage() {
    if (!finalMessageSent) {
      int type = errorForPeer == null ? ControlMessage.GOODBYE : ControlMessage.ERROR;
      finalMessageSent = sender.putFarewell(type, errorForPeer == null ? "" : errorForPeer);
    }
    int work = sender.progressMessages(receiver.received());
    if (!receiver.hasFinalMessage() && !receiveStopped) {
      work += receiver.discard();
    }
    boolean said = finalMessageSent && sender.isIdle() && receiver.hasFinalMessage();
    if (said || System.nanoTime() - farewellStartNs > FAREWELL_NS) {
      breakOff();
    }
    return work;
  }

  /** Closes the link at once, without a final message. */
  void breakOff() {
    if (state == State.ENDED) {
      return;
    }
    boolean leaving = state == State.LEAVING;
    state = State.ENDED;
    try {
      // Closes every resource even if closing one fails.
      Closing.all(link, this::abandon);
    } catch (Throwable e) {
      connection.fail("closing failed: " + FluxCclException.from(e).getMessage(), e);
    } finally {
      if (leaving) {
        connection.ended();
      }
    }
  }

  private void abandon() {
    // There is a sender without a receiver if creating the receiver failed.
    Closing.all(
        sender == null ? null : sender::abandon, receiver == null ? null : receiver::abandon);
  }

  /** Returns how many times the link was lost and replaced, or is being replaced. */
  long resumptions() {
    return resumption == null ? 0 : resumption.count();
  }

  boolean receivesInto(OwnedMemory memory) {
    return state != State.ENDED && receiver != null && receiver.uses(memory);
  }

  void forget(OwnedMemory memory) {
    if (state == State.OPEN || state == State.LEAVING) {
      link.forget(memory);
    }
  }
}
