package io.fluxccl.transport.net;

import io.fluxccl.DeviceFailure;
import io.fluxccl.FluxCclException;
import io.fluxccl.concurrent.Closing;
import java.util.concurrent.TimeUnit;

/**
 * One connection's life with the plugin: its links are made, used, and after a farewell closed.
 * Confined to the agent.
 */
final class LinkWork implements Inbound.Events {
  /** How long a farewell may take to be taken. */
  private static final long FAREWELL_NS = TimeUnit.MILLISECONDS.toNanos(500);

  /** A device that copies, and has come no further for so long, is asked how it is. */
  private static final long STALL_NS = TimeUnit.MILLISECONDS.toNanos(5);

  /** The state of a connection. */
  private enum State {
    WAITING,
    CONNECTING,
    OPEN,
    LEAVING,
    ENDED
  }

  private final NetConnection connection;
  private final LinkSetup setup;
  private State state = State.WAITING;
  private EndpointWire peer;
  private Links links;

  /** Whether the agent's waiter ends its sleep when there is something to do on the links. */
  private boolean watched;

  private Outbound outbound;
  private Inbound inbound;

  /** What the peer is told that it did; null for an end in order. */
  private String complaint;

  /** Whether nothing is taken from the peer any more, because it sent what it must not. */
  private boolean hearsNoMore;

  private boolean farewellPut;
  private boolean farewellArrived;
  private long farewellStartNs;

  // How much was ever done, as of which look at the device, and when that was.
  private long moves;
  private long seenMoves;
  private long movedNs;

  /** Whether the device has not answered yet. */
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

  /** Goes on; returns how much was done. */
  int doWork() {
    try {
      return switch (state) {
        case CONNECTING -> poll();
        case OPEN -> connection.hasPeerLeft() ? sayGoodbyeBack() : move();
        case LEAVING -> sayFarewell();
        default -> 0;
      };
    } catch (ProtocolViolation e) {
      complaint = e.getMessage();
      hearsNoMore = true;
      connection.fail(complaint, null);
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
    outbound =
        new Outbound(connection.queue(), links, capacity, maxBytes, staging, connection::asked);
    inbound = new Inbound(links, capacity, connection.context().memories(), staging, this);
    watched = links.watchedBy(connection.context().agent().waiter());
    state = State.OPEN;
    connection.established();
    return 1;
  }

  /** Whether nothing needs to be polled: the agent may sleep until a socket is ready. */
  boolean isWatched() {
    return switch (state) {
      case CONNECTING, LEAVING -> false;
      case OPEN -> watched && !outbound.isCopying() && !inbound.isCopying();
      case WAITING, ENDED -> true;
    };
  }

  private int move() {
    if (connection.failure() != null) {
      return 0;
    }
    int work = inbound.progress() + outbound.progress();
    moves += work;
    return work;
  }

  /** A device that has failed would never say that copies are done. Called again and again. */
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

  /** The device refuses copies, or does none any more. */
  private void deviceFailed(FluxCclException reason) {
    complaint = "its device failed: " + reason.getMessage();
    connection.deviceFailed(reason);
  }

  /** So that the peer need not wait until this side is closed, too. */
  private int sayGoodbyeBack() {
    farewellPut = farewellPut || outbound.putFarewell(ControlMessage.GOODBYE, "");
    return outbound.progressControl();
  }

  private void broken(Throwable e) {
    boolean quiet = connection.hasPeerLeft() || state == State.LEAVING;
    boolean connecting = state == State.CONNECTING;
    try {
      if (!quiet) {
        // Before anything is closed, which may fail for reasons that explain nothing.
        connection.fail(
            (connecting ? "was not connected: " : "the network failed: ")
                + FluxCclException.from(e).getMessage(),
            e);
      }
    } finally {
      breakOff();
    }
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
  public void farewellArrived() {
    farewellArrived = true;
  }

  /** The connection has ended: says so to the peer where that makes sense, and closes the links. */
  void leave() {
    if (state == State.OPEN) {
      state = State.LEAVING;
      farewellStartNs = System.nanoTime();
    } else if (state != State.LEAVING) {
      breakOff();
      connection.ended();
    }
  }

  private int sayFarewell() {
    if (!farewellPut) {
      int type = complaint == null ? ControlMessage.GOODBYE : ControlMessage.ERROR;
      farewellPut = outbound.putFarewell(type, complaint == null ? "" : complaint);
    }
    int work = outbound.progressControl();
    if (!farewellArrived && !hearsNoMore) {
      work += inbound.progressArrivals();
    }
    boolean said = farewellPut && outbound.isControlIdle() && farewellArrived;
    if (said || System.nanoTime() - farewellStartNs > FAREWELL_NS) {
      breakOff();
    }
    return work;
  }

  /** Closes the links at once. */
  void breakOff() {
    if (state == State.ENDED) {
      return;
    }
    boolean leaving = state == State.LEAVING;
    state = State.ENDED;
    try {
      // What can't be closed keeps nothing else from it.
      Closing.all(setup::close, this::abandon);
    } catch (Throwable e) {
      connection.fail("closing failed: " + FluxCclException.from(e).getMessage(), e);
    } finally {
      if (leaving) {
        connection.ended();
      }
    }
  }

  private void abandon() {
    // There is only the first of them where the second can't be made.
    Closing.all(
        outbound == null ? null : outbound::abandon, inbound == null ? null : inbound::abandon);
  }

  boolean receivesInto(OwnedMemory memory) {
    return state != State.ENDED && inbound != null && inbound.uses(memory);
  }

  void forget(OwnedMemory memory) {
    if (state == State.OPEN || state == State.LEAVING) {
      // What can't be deregistered keeps nothing else from it.
      Closing.all(() -> outbound.forget(memory), () -> inbound.forget(memory));
    }
  }
}
