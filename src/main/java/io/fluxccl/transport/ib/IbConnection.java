package io.fluxccl.transport.ib;

import io.fluxccl.Aborted;
import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.Timeout;
import io.fluxccl.TransportFailure;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.FlushWaiters;
import io.fluxccl.transport.MemoryHandle;
import io.fluxccl.transport.RdmaOptions;
import io.fluxccl.transport.RegisteredMemory;
import io.fluxccl.transport.Transport;
import java.io.IOException;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;

/**
 * A connection over one reliable queue pair, whose writes and signals are RDMA writes. Checks what
 * is asked for and hands it to the {@link SendQueue}, on any thread and waiting for nobody; knows
 * when and why it ended. {@link IbConnector} connects it.
 */
final class IbConnection implements Connection, SendQueue.Owner {
  private static final long FULL_QUEUE_NAP_NS = 20_000;

  private final IbContext context;
  private final IbAgent agent;
  private final int remoteRank;
  private final int tag;
  private final IbConnector connector;
  private final SendQueue queue;
  private final FlushWaiters waiters = new FlushWaiters(this::flushTimeout);
  private final AtomicReference<FluxCclException> failure = new AtomicReference<>();
  private final CompletableFuture<FluxCclException> failed = new CompletableFuture<>();
  private volatile boolean peerLeft;

  /**
   * A new end.
   *
   * @param staging by which memory is reached that the device can't reach, or null
   */
  IbConnection(
      IbContext context,
      int remoteRank,
      int tag,
      byte[] token,
      RdmaOptions options,
      StagedPath staging) {
    this.context = context;
    this.agent = context.agent();
    this.remoteRank = remoteRank;
    this.tag = tag;
    this.connector = new IbConnector(context, this, token, options);
    this.queue = new SendQueue(this, options, staging);
  }

  @Override
  public Transport transport() {
    return context.transport();
  }

  @Override
  public int remoteRank() {
    return remoteRank;
  }

  @Override
  public int tag() {
    return tag;
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
    IbMemoryHandle to = handleOf("target", target, remoteRank);
    IbMemoryHandle from = handleOf("source", source, context.rank());
    target.checkRange("target", targetOffset, size);
    source.checkRange("source", sourceOffset, size);
    if (!from.isOwn()) {
      throw new InvalidUsage(
          "source " + source + " is what a peer sent; write from what registerMemory gave");
    }
    beginUse("target", to, target);
    if (!from.beginUse()) {
      to.endUse();
      throw new InvalidUsage("source " + source + " is closed");
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
    IbMemoryHandle to = handleOf("target", target, remoteRank);
    target.checkRange("target", targetOffset, Long.BYTES);
    if ((to.addressAt(targetOffset) & Long.BYTES - 1) != 0) {
      throw new InvalidUsage(
          "targetOffset=" + targetOffset + " is not at a multiple of 8 of rank " + remoteRank);
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
  public long beginFlush() {
    checkWorking();
    long ticket = queue.flush();
    if (ticket == 0) {
      checkWorking();
    }
    posted();
    return ticket;
  }

  @Override
  public long flushedTicket() {
    if (isBusy()) {
      queue.advance(true);
    }
    return queue.flushedTicket();
  }

  @Override
  public CompletableFuture<Void> flush(Duration timeout) {
    Deadline deadline = Deadline.after(timeout);
    long ticket;
    try {
      ticket = beginFlush();
    } catch (FluxCclException e) {
      return CompletableFuture.failedFuture(e);
    }
    CompletableFuture<Void> waiter = waiters.add(ticket, deadline);
    agent.wake();
    // A failure in between may not have seen the waiter; one of the two sides sees the other.
    FluxCclException reason = failure.get();
    if (reason != null) {
      waiter.completeExceptionally(reason);
    }
    return waiter;
  }

  private void posted() {
    queue.advance(false);
    if (queue.hasWaiting()) {
      // Another thread was at it, or the send queue is full. What is with the device and nobody
      // waits for, the agent finds by itself.
      agent.wake();
    }
    // Only who outruns the device by tens of thousands of posts is held back, until it has caught
    // up or the connection has failed.
    while (queue.isFull() && !hasFailed() && !agent.isCurrentThread()) {
      LockSupport.parkNanos(this, FULL_QUEUE_NAP_NS);
    }
  }

  private IbMemoryHandle handleOf(String what, RegisteredMemory memory, int rank) {
    if (memory.rank() != rank) {
      throw new InvalidUsage(
          what + " is memory of rank " + memory.rank() + "; here it must be rank " + rank + "'s");
    }
    MemoryHandle handle = memory.handle(context.transport());
    if (!(handle instanceof IbMemoryHandle)
        || !((IbMemoryHandle) handle).belongsTo(context)
        || ((IbMemoryHandle) handle).isStaged() != queue.isStaged()
        || ((IbMemoryHandle) handle).size() < memory.size()) {
      throw new InvalidUsage(
          what + " " + memory + " was not registered with, or received by, this communicator");
    }
    return (IbMemoryHandle) handle;
  }

  private static void beginUse(String what, IbMemoryHandle handle, RegisteredMemory memory) {
    if (!handle.beginUse()) {
      throw new InvalidUsage(what + " " + memory + " is closed");
    }
  }

  private void checkWorking() {
    if (peerLeft) {
      fail(left(), null);
    }
    FluxCclException reason = failure.get();
    if (reason != null) {
      throw reason;
    }
  }

  // What the agent does and asks.

  /** Begins to send over an established link. Called by the agent. */
  void open(VerbsLink link, IbEndpointCodec.Inbox peer) throws IOException {
    queue.open(link, context.port(), peer);
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
    return connector.isDelivered() && !hasFailed() && (queue.isStaged() || queue.isBusy());
  }

  /**
   * Whether the agent is the one to hurry: always, where the peer's writes need its hands. Called
   * by the agent.
   */
  boolean isAwaited() {
    return isPostedTo() || queue.isStaged() && connector.isDelivered();
  }

  private boolean isPostedTo() {
    return !waiters.isEmpty() || queue.hasWaiting();
  }

  /** {@link SendQueue#advance}, and ends flushes that are done. Called by the agent. */
  int doWork() {
    return queue.advance(true) + waiters.advance(queue.flushedTicket());
  }

  /** Called by the agent every half a millisecond or so. */
  void checkDeadlines() {
    waiters.expire(queue.flushedTicket());
    queue.checkDevice();
    if (peerLeft && isPostedTo()) {
      // Posted just before this side learned of it.
      fail(left(), null);
    }
    connector.checkDeadline();
  }

  // Ending.

  /** The peer has closed its end, or is no more. Called by the agent. */
  void disconnected() {
    // What the peer acknowledged before it left is done.
    doWork();
    if (hasFailed()) {
      return;
    }
    peerLeft = true;
    // With nothing to do it ends when somebody posts, who then learns why.
    if (!waiters.isEmpty() || !queue.closeIfIdle()) {
      fail(left(), null);
    }
  }

  private String left() {
    return "rank " + remoteRank + " has closed its end, or its process is no more";
  }

  @Override
  public boolean hasFailed() {
    return failure.get() != null;
  }

  @Override
  public void fail(String message, Throwable cause) {
    if (!hasFailed()) {
      end(new TransportFailure(remoteRank, describe() + ": " + message, cause));
    }
  }

  /** Ends an end that was not connected. */
  void giveUp() {
    if (!connector.isDelivered()) {
      end(new Aborted(context.rank(), describe() + " was given up before it was connected"));
    }
  }

  @Override
  public void close() {
    end(new Aborted(context.rank(), describe() + " was closed by rank " + context.rank()));
  }

  void end(FluxCclException reason) {
    if (failure.compareAndSet(null, reason)) {
      agent.execute(() -> afterEnd(reason));
    }
  }

  private void afterEnd(FluxCclException reason) {
    context.forget(this);
    agent.remove(this);
    queue.close(connector::closeLinks);
    connector.fail(reason);
    waiters.fail(reason);
    failed.complete(reason);
  }

  @Override
  public FluxCclException failure() {
    return failure.get();
  }

  @Override
  public CompletableFuture<FluxCclException> failed() {
    return failed.copy();
  }

  private FluxCclException flushTimeout(Deadline deadline) {
    return new Timeout(
        remoteRank,
        "flush of "
            + describe()
            + " was not acknowledged by rank "
            + remoteRank
            + " within "
            + deadline.timeout().toMillis()
            + " ms; allow more time, or see what holds that rank up");
  }

  private String describe() {
    return "the "
        + context.transport()
        + " connection to rank "
        + remoteRank
        + " (tag "
        + tag
        + ")";
  }

  @Override
  public String toString() {
    return describe();
  }
}
