// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import io.fluxccl.DeviceFailure;
import io.fluxccl.FluxCclException;
import io.fluxccl.concurrent.Closing;
import java.util.concurrent.TimeUnit;

/**
 * Opens the links of one connection, moves data over them, and closes them after an exchange of
 * final messages. A link that carries bodies is replaced when it is lost. Confined to the agent.
 */
final class LinkWork implements Inbound.Events {
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
  private final LinkSetup setup;
  private State state = State.WAITING;
  private EndpointWire peer;
  private Links links;

  /** True if the agent's waiter wakes up when a link is ready. */
  private boolean watched;

  private Outbound outbound;
  private Inbound inbound;

  /** Replaces a lost link, and looks after it; null if the connection does not resume. */
  private Resumption resumption;

  /** The error that the final message reports to the peer; null for an orderly close. */
  private String errorForPeer;

  /** True if no message is received any more, because the peer violated the protocol. */
  private boolean receiveStopped;

  private boolean finalMessageSent;
  private boolean finalMessageReceived;
  private long farewellStartNs;

  // The total work count, its value at the last device check, and the time of its last change seen.
  private long moves;
  private long seenMoves;
  private long movedNs;

  /** True while a check of the device's health is pending. */
  private volatile boolean asking;

  LinkWork(NetConnection connection, LinkSetup setup) {
    this.connection = connection;
    this.setup = setup;
  }

  void connect(EndpointWire remote) {
    peer = remote;
    setup.start(remote);
    state = State.CONNECTING;
  }

  String missing() {
    return setup.missing();
  }

  /** Advances the links in their current state, and returns the work count. */
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
    links = setup.poll();
    if (links == null) {
      return 0;
    }
    int capacity = connection.context().plugin().maxRequests();
    long maxBytes = Math.min(connection.context().maxBytes(), peer.maxBytes());
    Staging staging = connection.context().staging();
    boolean checksums = connection.config().checksums() || peer.checksums();
    outbound =
        new Outbound(
            connection.queue(), links, capacity, maxBytes, checksums, staging, connection::asked);
    inbound =
        new Inbound(links, capacity, checksums, connection.context().memories(), staging, this);
    LinkResume resume = setup.resume();
    resumption =
        resume == null ? null : new Resumption(connection, resume, inbound, outbound.control());
    open();
    connection.established();
    return 1;
  }

  private void open() {
    watched = links.watchedBy(connection.context().agent().waiter());
    state = State.OPEN;
  }

  /** Replaces the lost link, and returns the work count. */
  private int resume() {
    if (connection.failure() != null || !resumption.poll(links)) {
      return 0;
    }
    open();
    return 1;
  }

  /**
   * Confirms arrived messages, and detects a lost link that reports no error. The agent calls it
   * periodically.
   */
  void checkLink() {
    if (state != State.OPEN || resumption == null || connection.failure() != null) {
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
      case OPEN -> watched && !outbound.isCopying() && !inbound.isCopying();
      case WAITING, ENDED -> true;
    };
  }

  /** Returns whether posts are sent: false while they wait for a link, or for room. */
  boolean takesPosts() {
    return state == State.OPEN && outbound.takesPosts();
  }

  private int move() {
    if (connection.failure() != null) {
      return 0;
    }
    int work = inbound.progress() + outbound.progress(inbound.received());
    moves += work;
    return work;
  }

  /**
   * Checks the device's health if its copies make no progress, because a failed device never
   * reports copies as done. The agent calls it periodically.
   */
  void checkDevice() {
    if (state != State.OPEN || asking || !outbound.isCopying() && !inbound.isCopying()) {
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
    finalMessageSent = finalMessageSent || outbound.putFarewell(ControlMessage.GOODBYE, "");
    return outbound.progressControl(inbound.received());
  }

  private void broken(Throwable e) {
    boolean quiet = connection.hasPeerLeft() || state == State.LEAVING;
    boolean connecting = state == State.CONNECTING;
    if (state == State.OPEN && !quiet && !finalMessageReceived && resumes(e)) {
      state = State.RESUMING;
      return;
    }
    try {
      if (!quiet) {
        // Fails before the links are closed: closing may throw errors that hide the cause.
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

  @Override
  public void confirmed(long count) {
    outbound.control().confirmed(count);
  }

  @Override
  public void confirmationAsked() {
    outbound.control().confirm();
  }

  @Override
  public void flushRequested(long ticket) {
    outbound.acknowledge(ticket);
  }

  @Override
  public void acknowledged(long ticket) {
    connection.acknowledged(ticket);
  }

  @Override
  public void errorReported(String text) {
    connection.fail("rank " + connection.remoteRank() + " refuses: " + text, null);
  }

  @Override
  public void peerLeaves() {
    connection.peerLeaves();
  }

  @Override
  public void finalMessageReceived() {
    finalMessageReceived = true;
  }

  /**
   * Closes the links of a connection that has failed or was closed. Links in use exchange final
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
      finalMessageSent = outbound.putFarewell(type, errorForPeer == null ? "" : errorForPeer);
    }
    int work = outbound.progressControl(inbound.received());
    if (!finalMessageReceived && !receiveStopped) {
      work += inbound.progressArrivals();
    }
    boolean said = finalMessageSent && outbound.isControlIdle() && finalMessageReceived;
    if (said || System.nanoTime() - farewellStartNs > FAREWELL_NS) {
      breakOff();
    }
    return work;
  }

  /** Closes the links at once, without a final message. */
  void breakOff() {
    if (state == State.ENDED) {
      return;
    }
    boolean leaving = state == State.LEAVING;
    state = State.ENDED;
    try {
      // Closes every resource even if closing one fails.
      Closing.all(setup::close, resumption, this::abandon);
    } catch (Throwable e) {
      connection.fail("closing failed: " + FluxCclException.from(e).getMessage(), e);
    } finally {
      if (leaving) {
        connection.ended();
      }
    }
  }

  private void abandon() {
    // Outbound exists without inbound if the creation of inbound failed.
    Closing.all(
        outbound == null ? null : outbound::abandon, inbound == null ? null : inbound::abandon);
  }

  /** Returns how many times the link was lost and replaced, or is being replaced. */
  long resumptions() {
    return resumption == null ? 0 : resumption.count();
  }

  boolean receivesInto(OwnedMemory memory) {
    return state != State.ENDED && inbound != null && inbound.uses(memory);
  }

  void forget(OwnedMemory memory) {
    if (state == State.OPEN || state == State.LEAVING) {
      // Deregisters on both sides even if one fails.
      Closing.all(() -> outbound.forget(memory), () -> inbound.forget(memory));
    }
  }
}
