package io.fluxccl.transport.ib;

import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.TransportFailure;
import io.fluxccl.transport.AgentConnection;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.RdmaOptions;
import io.fluxccl.transport.RegisteredMemory;
import java.util.Arrays;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;

/**
 * A connection over one reliable queue pair, whose writes and signals are RDMA writes. A posting
 * method checks its arguments and passes the post to the {@link SendQueue}, on any thread and
 * without waiting for another thread.
 *
 * <p>Both ends share one queue pair. The end with the lesser token connects and presents the other
 * end's token. An end that is its own peer connects and accepts.
 */
final class IbConnection extends AgentConnection implements LinkEvents {
  private final IbContext context;
  private final IbAgent agent;
  private final byte[] token;
  private final RdmaOptions options;
  private final SendQueue queue;
  private final AtomicBoolean begun = new AtomicBoolean();
  private final CompletableFuture<Connection> connected = new CompletableFuture<>();

  /** True once the caller of connect has received the connection. */
  private volatile boolean delivered;

  // Confined to the agent.
  private Deadline deadline;
  private VerbsLink link;
  private VerbsLink echo;
  private boolean established;

  /**
   * Creates an end that waits for its peer.
   *
   * @param token a peer must present it to connect to this end
   */
  IbConnection(IbContext context, int remoteRank, int tag, byte[] token, RdmaOptions options) {
    super(context.transport(), context.rank(), remoteRank, tag, context.agent());
    this.context = context;
    this.agent = context.agent();
    this.token = token;
    this.options = options;
    this.queue = new SendQueue(this, options);
  }

  byte[] token() {
    return token;
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

  /** Connects to the end that a peer described. Any thread. */
  CompletableFuture<Connection> connect(byte[] remoteWire, Deadline by) {
    if (!begun.compareAndSet(false, true)) {
      return CompletableFuture.failedFuture(connectedTwice());
    }
    // A caller that cancels the future closes this end.
    connected.whenComplete((done, error) -> giveUp());
    try {
      IbEndpoint.End peer = IbEndpoint.End.decode(remoteWire, remoteRank());
      if (peer.tag() == tag()) {
        agent.execute(() -> connect(peer, by));
      } else {
        String message = "rank %s connects with tag=%s";
        fail(message.formatted(remoteRank(), peer.tag()), null);
      }
    } catch (TransportFailure e) {
      end(e);
    }
    return connected;
  }

  private void connect(IbEndpoint.End peer, Deadline by) {
    deadline = by;
    if (hasFailed()) {
      return;
    }
    if (Arrays.compareUnsigned(token, peer.token()) <= 0) {
      try {
        link = context.port().connect(peer.address(), peer.token(), this);
      } catch (Throwable e) {
        String message = "can't connect to rank %s: %s";
        fail(message.formatted(remoteRank(), e.getMessage()), e);
      }
    }
    deliver();
  }

  @Override
  public RdmaOptions options() {
    return options;
  }

  @Override
  public void requested(VerbsLink incoming) {
    if (link == null) {
      link = incoming;
    } else {
      echo = incoming;
    }
  }

  @Override
  public void established(VerbsLink which) {
    if (which == link && !hasFailed()) {
      established = true;
      deliver();
    }
  }

  private void deliver() {
    if (!established || deadline == null || delivered || hasFailed()) {
      return;
    }
    try {
      queue.open(link, context.port());
    } catch (Throwable e) {
      fail("memory for signals can't be registered: " + e.getMessage(), e);
      return;
    }
    delivered = true;
    if (!connected.complete(this)) {
      // A caller that cancelled may have seen it as delivered and not closed it.
      close();
    }
  }

  @Override
  public void failed(VerbsLink which, String reason) {
    String message = "rank %s was not connected: %s";
    fail(message.formatted(remoteRank(), reason), null);
  }

  /** Closes the queue pairs that exist. Idempotent. */
  private void closeLinks() {
    if (link != null) {
      link.close();
    }
    if (echo != null) {
      echo.close();
    }
  }

  /** Returns whether connection events are expected soon. Called by the agent. */
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
    return queue.advance(true) + waiters().advance(queue.flushedTicket());
  }

  @Override
  protected void checkDeadlines() {
    waiters().expire(queue.flushedTicket());
    if (hasPeerLeft() && isAwaited()) {
      // They were posted just before this side learned that the peer has left.
      fail(left(), null);
    }
    if (isConnecting() && !hasFailed() && deadline.expired()) {
      end(connectTimeout(deadline, "the peer did not answer; does the network carry RDMA (rping)"));
    }
  }

  // Failure and close: called by the agent.

  @Override
  public void disconnected(VerbsLink which) {
    try {
      if (which != echo) {
        disconnected();
      }
    } catch (Throwable e) {
      failInService(e);
    }
  }

  private void disconnected() {
    // Requests that the peer acknowledged before it left are done.
    queue.takeLast();
    doWork();
    if (hasFailed()) {
      return;
    }
    setPeerLeft();
    // An idle connection fails with the next post.
    if (!waiters().isEmpty() || !queue.closeIfIdle()) {
      fail(left(), null);
    }
  }

  @Override
  public String left() {
    return super.left() + ", or its process is no more";
  }

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
      queue.close(this::closeLinks);
    } finally {
      connected.completeExceptionally(reason);
    }
  }
}
