package io.fluxccl.transport.ib;

import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.Timeout;
import io.fluxccl.transport.AgentConnection;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.RdmaOptions;
import io.fluxccl.transport.RegisteredMemory;
import java.io.IOException;
import java.util.concurrent.atomic.AtomicLong;

/**
 * A connection over one reliable queue pair, whose writes and signals are RDMA writes. Posting
 * checks its arguments and passes the post to the {@link SendQueue}, on any thread and without
 * waiting for another one. {@link IbConnector} connects it.
 */
final class IbConnection extends AgentConnection {
  private final IbContext context;
  private final IbAgent agent;
  private final IbConnector connector;
  private final SendQueue queue;

  IbConnection(IbContext context, int remoteRank, int tag, byte[] token, RdmaOptions options) {
    super(context.transport(), context.rank(), remoteRank, tag, context.agent());
    this.context = context;
    this.agent = context.agent();
    this.connector = new IbConnector(context, this, token, options);
    this.queue = new SendQueue(this, options);
  }

  IbConnector connector() {
    return connector;
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
      // Another thread uses the queue pair, or the send queue is full. Requests that are with the
      // device, and that no flush waits for, the agent finds by itself.
      agent.wake();
    }
    awaitRoom();
  }

  @Override
  protected boolean isFull() {
    return queue.isFull();
  }

  // Connecting and serving: the agent.

  /** Returns the error of a second call of connect. */
  InvalidUsage connectTwice() {
    return connectedTwice();
  }

  /** Returns the error of a connect that took too long. */
  Timeout notConnected(Deadline deadline) {
    return connectTimeout(deadline, "the peer did not answer; does the network carry RDMA (rping)");
  }

  /** Begins to send over an established link. Called by the agent. */
  void open(VerbsLink link) throws IOException {
    queue.open(link, context.port());
  }

  /** Returns whether connection events are expected soon. Called by the agent. */
  boolean isConnecting() {
    return connector.isConnecting();
  }

  /**
   * Returns whether requests wait for the device or are with it. Any thread; one that does not use
   * the queue pair may read a value that is no longer true.
   */
  boolean isBusy() {
    return connector.isDelivered() && !hasFailed() && queue.isBusy();
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
      // Posted just before this side learned of it.
      fail(left(), null);
    }
    connector.checkDeadline();
  }

  // Ending: the agent.

  /** Handles that the peer has closed its end, or that its process has ended. */
  void serveDisconnected() {
    try {
      disconnected();
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
    if (!connector.isDelivered()) {
      end(givenUp());
    }
  }

  @Override
  protected void afterEnd(FluxCclException reason) {
    context.forget(this);
    agent.remove(this);
    try {
      queue.close(connector::closeLinks);
    } finally {
      connector.fail(reason);
    }
  }
}
