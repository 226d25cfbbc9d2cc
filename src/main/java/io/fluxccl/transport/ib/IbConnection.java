// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.ib;

import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.Text;
import io.fluxccl.TransportFailure;
import io.fluxccl.transport.AgentConnection;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.RdmaOptions;
import io.fluxccl.transport.RegisteredMemory;
import java.io.IOException;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Supplier;

/**
 * A connection over one reliable queue pair, whose writes and signals are RDMA writes. A posting
 * method checks its arguments and passes the post to the {@link SendQueue}, on any thread and
 * without waiting for another thread.
 *
 * <p>Each end has the numbers of the other end's queue pair from the bootstrap, and connects its
 * own to it. When both ends are connected, each sends the other a hello by a write. It is open when
 * the peer's device has acknowledged the hello.
 */
final class IbConnection extends AgentConnection {
  private static final Duration GRACE = Duration.ofMillis(50);

  private final IbContext context;
  private final IbAgent agent;
  private final int number;
  private final int packet;
  private final SendQueue queue;
  private final AtomicBoolean begun = new AtomicBoolean();
  private final CompletableFuture<Connection> connected = new CompletableFuture<>();

  /** True once the caller of connect has received the connection. */
  private volatile boolean delivered;

  // Confined to the agent.
  private Deadline deadline;
  private boolean greeted;

  /** The time until which completions are awaited after the peer has left; null before that. */
  private Deadline grace;

  /**
   * Creates an end that waits for its peer.
   *
   * @param packet the number of the first packet that it sends
   * @param link the queue pair, which this connection closes
   * @throws IOException if memory for hellos and signals can't be registered
   */
  IbConnection(
      IbContext context, int remoteRank, int tag, int packet, Verbs.Link link, RdmaOptions options)
      throws IOException {
    super(context.transport(), context.rank(), remoteRank, tag, context.agent());
    this.context = context;
    this.agent = context.agent();
    this.number = link.number();
    this.packet = packet;
    this.queue = new SendQueue(this, options, link, context.port());
  }

  /** Returns the description of this end for the peer. */
  IbEndpoint.End end() {
    ControlWords words = queue.words();
    return new IbEndpoint.End(
        rank(), tag(), number, packet, words.greeting(), words.remoteKey(), context.address());
  }

  // Posting: any thread.

  @Override
  public Connection write(
      RegisteredMemory target,
      long targetOffset,
      RegisteredMemory source,
      long sourceOffset,
      long size) {
    checkWorking();
    IbMemoryHandle to = handleOf("target", target, remoteRank(), context, IbMemoryHandle.class);
    IbMemoryHandle from = handleOf("source", source, rank(), context, IbMemoryHandle.class);
    target.checkRange("target", targetOffset, size);
    source.checkRange("source", sourceOffset, size);
    if (!from.isOwn()) {
      throw InvalidUsage.of(
          "source %s was received from a peer; write from memory of registerMemory", source);
    }
    enter("target", to, target);
    if (!from.enter()) {
      to.release();
      throw closed("source", source);
    }
    if (size == 0 || !queue.write(to, targetOffset, from, sourceOffset, size)) {
      from.release();
      to.release();
      checkWorking();
      return this;
    }
    posted();
    return this;
  }

  @Override
  public Connection updateAndSync(
      RegisteredMemory target, long targetOffset, AtomicLong counter, long newValue) {
    checkWorking();
    IbMemoryHandle to = handleOf("target", target, remoteRank(), context, IbMemoryHandle.class);
    target.checkRange("target", targetOffset, Long.BYTES);
    checkAlignedAt(to.addressAt(targetOffset), targetOffset);
    enter("target", to, target);
    counter.set(newValue);
    if (!queue.update(to, targetOffset, newValue)) {
      to.release();
      checkWorking();
    }
    posted();
    return this;
  }

  @Override
  protected long postFlush() {
    return queue.flush();
  }

  @Override
  public long flushedTicket() {
    if (isBusy()) {
      queue.advance(true);
    }
    return queue.flushedTicket();
  }

  @Override
  protected void posted() {
    queue.advance(false);
    if (queue.hasWaiting()) {
      // Another thread uses the queue pair, or the send queue is full. The agent needs no wake-up
      // for requests in flight that no flush waits for.
      agent.wake();
    }
    awaitRoom();
  }

  @Override
  protected boolean isFull() {
    return queue.isFull();
  }

  // Connecting and serving: called by the agent.

  /**
   * Connects to the end that a peer described. Any thread.
   *
   * @param bothReady notifies the peer that this end executes its requests, and completes when the
   *     peer's end does so, too
   */
  CompletableFuture<Connection> connect(
      byte[] remoteWire, Deadline by, Supplier<CompletableFuture<Void>> bothReady) {
    if (!begun.compareAndSet(false, true)) {
      return CompletableFuture.failedFuture(connectedTwice());
    }
    // A caller that cancels the future closes this end.
    connected.whenComplete((done, error) -> giveUp());
    try {
      IbEndpoint.End peer = IbEndpoint.End.decode(remoteWire, remoteRank());
      if (peer.tag() == tag()) {
        agent.execute(() -> connect(peer, by, bothReady));
      } else {
        String message = "rank %s connects with tag=%s";
        fail(Text.of(message, remoteRank(), peer.tag()), null);
      }
    } catch (TransportFailure e) {
      end(e);
    }
    return connected;
  }

  private void connect(
      IbEndpoint.End peer, Deadline by, Supplier<CompletableFuture<Void>> bothReady) {
    deadline = by;
    if (hasFailed()) {
      return;
    }
    try {
      PortAddress.Route route = context.address().routeTo(peer.port());
      if (route.problem() != null) {
        notConnected(route.problem(), null);
        return;
      }
      queue.connect(path(peer, route), peer);
      bothReady.get().whenComplete((ready, failure) -> agent.execute(() -> greet(failure)));
    } catch (Throwable e) {
      notConnected(e.getMessage(), e);
    }
  }

  private Verbs.QueuePairPath path(IbEndpoint.End peer, PortAddress.Route route) {
    boolean byGid = route.own() != null;
    return new Verbs.QueuePairPath(
        peer.queuePair(),
        packet,
        peer.packet(),
        Math.min(context.address().attributes().mtu(), peer.port().attributes().mtu()),
        peer.port().attributes().lid(),
        byGid ? route.own().index() : -1,
        byGid ? route.peer().bytes() : new byte[0]);
  }

  private void greet(Throwable failure) {
    if (hasFailed()) {
      return;
    }
    if (failure != null) {
      end(FluxCclException.from(failure));
      return;
    }
    try {
      queue.postHello();
      greeted = true;
    } catch (Throwable e) {
      notConnected(e.getMessage(), e);
    }
  }

  private void notConnected(String reason, Throwable cause) {
    fail(Text.of("rank %s was not connected: %s", remoteRank(), reason), cause);
  }

  /** Delivers the connection if the peer has acknowledged the hello; returns the work count. */
  private int deliver() {
    try {
      if (!queue.tryOpen()) {
        return 0;
      }
    } catch (IOException e) {
      notConnected(e.getMessage(), e);
      return 1;
    }
    delivered = true;
    if (!connected.complete(this)) {
      // A caller that cancelled may have seen it as delivered and not closed it.
      close();
    }
    return 1;
  }

  /**
   * Fails the connection because the device has failed a request.
   *
   * @param request the request, or null for the hello
   * @param reason the status of its completion
   */
  void failed(String request, String reason) {
    if (request == null) {
      notConnected(reason, null);
    } else {
      fail(request + " failed: " + reason, null);
    }
  }

  /** Returns whether this end waits for its peer. Called by the agent. */
  boolean isConnecting() {
    return deadline != null && !delivered;
  }

  /**
   * Returns whether requests wait for the device or are in flight. Any thread; a thread that does
   * not use the queue pair may read an outdated value.
   */
  boolean isBusy() {
    return delivered && !hasFailed() && queue.isBusy();
  }

  /** Returns whether a flush is awaited or posts wait for the device. Called by the agent. */
  boolean isAwaited() {
    return !waiters().isEmpty() || queue.hasWaiting();
  }

  @Override
  protected int doWork() {
    if (!delivered) {
      return greeted && !hasFailed() ? deliver() : 0;
    }
    return queue.advance(true) + waiters().advance(queue.flushedTicket());
  }

  @Override
  protected void checkDeadlines() {
    waiters().expire(queue.flushedTicket());
    if (delivered && !hasFailed() && queue.words().hasPeerLeft()) {
      peerLeaves();
    }
    if (isConnecting() && !hasFailed() && deadline.expired()) {
      end(connectTimeout(deadline, "the peer did not answer"));
    }
  }

  /**
   * The peer has sent its final message. An idle connection fails with the next post. Requests that
   * the peer acknowledged before it left are done, but their completions may still be on their way.
   */
  private void peerLeaves() {
    queue.takeLast();
    waiters().advance(queue.flushedTicket());
    if (grace == null) {
      grace = Deadline.after(GRACE);
      setPeerLeft();
    }
    if (grace.expired() && (!waiters().isEmpty() || queue.isBusy())) {
      fail(left(), null);
    }
  }

  // Failure and close: called by the agent.

  /** Closes this end unless it was connected. */
  void giveUp() {
    if (!delivered) {
      end(givenUp());
    }
  }

  @Override
  protected void afterEnd(FluxCclException reason) {
    context.forget(this);
    agent.remove(this);
    try {
      queue.close().ifPresent(agent::add);
    } finally {
      connected.completeExceptionally(reason);
    }
  }
}
