package io.fluxccl.transport.ib;

import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.transport.AgentConnection;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.MemoryHandle;
import io.fluxccl.transport.RdmaOptions;
import io.fluxccl.transport.RegisteredMemory;
import java.io.IOException;
import java.util.concurrent.atomic.AtomicLong;

/**
 * A connection over one reliable queue pair, whose writes and signals are RDMA writes. Checks what
 * is asked for and hands it to the {@link SendQueue}, on any thread and waiting for nobody; knows
 * when and why it ended. {@link IbConnector} connects it.
 */
final class IbConnection extends AgentConnection implements SendQueue.Owner {
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
    IbMemoryHandle to = ibHandleOf("target", target, remoteRank());
    IbMemoryHandle from = ibHandleOf("source", source, rank());
    target.checkRange("target", targetOffset, size);
    source.checkRange("source", sourceOffset, size);
    if (!from.isOwn()) {
      throw new InvalidUsage(
          "source " + source + " is what a peer sent; write from what registerMemory gave");
    }
    beginUse("target", to, target);
    if (!from.beginUse()) {
      to.endUse();
      throw closed("source", source);
    }
    if (size == 0 || !queue.write(to, targetOffset, from, sourceOffset, size)) {
      from.endUse();
      to.endUse();
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
    IbMemoryHandle to = ibHandleOf("target", target, remoteRank());
    target.checkRange("target", targetOffset, Long.BYTES);
    if ((to.addressAt(targetOffset) & Long.BYTES - 1) != 0) {
      throw new InvalidUsage(
          "targetOffset=" + targetOffset + " is not at a multiple of 8 of rank " + remoteRank());
    }
    beginUse("target", to, target);
    counter.set(newValue);
    if (!queue.update(to, targetOffset, newValue)) {
      to.endUse();
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
      // Another thread was at it, or the send queue is full. What is with the device and nobody
      // waits for, the agent finds by itself.
      agent.wake();
    }
    awaitRoom();
  }

  @Override
  protected boolean isFull() {
    return queue.isFull();
  }

  private IbMemoryHandle ibHandleOf(String what, RegisteredMemory memory, int rank) {
    MemoryHandle handle = handleOf(what, memory, rank);
    if (!(handle instanceof IbMemoryHandle)
        || !((IbMemoryHandle) handle).belongsTo(context)
        || ((IbMemoryHandle) handle).size() < memory.size()) {
      throw new InvalidUsage(
          what + " " + memory + " was not registered with, or received by, this communicator");
    }
    return (IbMemoryHandle) handle;
  }

  private static void beginUse(String what, IbMemoryHandle handle, RegisteredMemory memory) {
    if (!handle.beginUse()) {
      throw closed(what, memory);
    }
  }

  // What the agent does and asks.

  /** Begins to send over an established link. Called by the agent. */
  void open(VerbsLink link) throws IOException {
    queue.open(link, context.port());
  }

  /** Whether the agent should look for connection events often. Called by the agent. */
  boolean isConnecting() {
    return connector.isConnecting();
  }

  /**
   * Whether requests are with the device or on their way there. Any thread; who is not at it may
   * see what was so a moment ago.
   */
  boolean isBusy() {
    return connector.isDelivered() && !hasFailed() && queue.isBusy();
  }

  /** Whether a flush is awaited or posts wait for the device. Called by the agent. */
  boolean isAwaited() {
    return !waiters().isEmpty() || queue.hasWaiting();
  }

  /** {@link SendQueue#advance}, and ends flushes that are done. */
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

  // Ending.

  /** The peer has closed its end, or is no more. Called by the agent. */
  void serveDisconnected() {
    try {
      disconnected();
    } catch (Throwable e) {
      failInService(e);
    }
  }

  private void disconnected() {
    // What the peer acknowledged before it left is done.
    queue.takeLast();
    doWork();
    if (hasFailed()) {
      return;
    }
    setPeerLeft();
    // With nothing to do it ends when somebody posts, who then learns why.
    if (!waiters().isEmpty() || !queue.closeIfIdle()) {
      fail(left(), null);
    }
  }

  @Override
  public String left() {
    return super.left() + ", or its process is no more";
  }

  /** Ends an end that was not connected. */
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
