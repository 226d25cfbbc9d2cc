package io.fluxccl.transport;

import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.locks.LockSupport;

/**
 * For transports: an end of a connection that a {@link TransportAgent} serves. What is posted goes
 * into a queue; who waits for a flush is told by the agent.
 */
public abstract class AgentConnection extends ConnectionEnd {
  private static final long FULL_QUEUE_NAP_NS = 20_000;

  private final TransportAgent agent;
  private final FlushWaiters waiters = new FlushWaiters(this::flushTimeout);

  /**
   * A new end.
   *
   * @param transport what it goes over
   * @param rank this end's
   * @param remoteRank the peer's
   * @param tag the connection's
   * @param agent who serves it
   */
  protected AgentConnection(
      Transport transport, int rank, int remoteRank, int tag, TransportAgent agent) {
    super(transport, rank, remoteRank, tag);
    this.agent = agent;
  }

  /** Who waits for a flush. For the agent. */
  protected final FlushWaiters waiters() {
    return waiters;
  }

  /** Queues a flush; its ticket, or 0 once closed. */
  protected abstract long postFlush();

  /** Sees to it that what was queued is looked at. */
  protected abstract void posted();

  /** Whether so much is queued that who posts should wait. */
  protected abstract boolean isFull();

  @Override
  public final long beginFlush() {
    checkWorking();
    long ticket = postFlush();
    if (ticket == 0) {
      checkWorking();
    }
    posted();
    return ticket;
  }

  @Override
  public final CompletableFuture<Void> flush(Duration timeout) {
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
    FluxCclException reason = failure();
    if (reason != null) {
      waiter.completeExceptionally(reason);
    }
    return waiter;
  }

  /**
   * Holds back who outruns the device by tens of thousands of posts, until it has caught up or the
   * connection has failed; never the agent.
   */
  protected final void awaitRoom() {
    while (isFull() && !hasFailed() && !agent.isCurrentThread()) {
      LockSupport.parkNanos(this, FULL_QUEUE_NAP_NS);
    }
  }

  /**
   * {@link #doWork}; what it throws ends this connection and no other. Called by the agent.
   *
   * @return how much was done
   */
  public final int serve() {
    try {
      return doWork();
    } catch (Throwable e) {
      failInService(e);
      return 0;
    }
  }

  /** {@link #checkDeadlines}; what it throws ends this connection and no other. By the agent. */
  public final void serveDeadlines() {
    try {
      checkDeadlines();
    } catch (Throwable e) {
      failInService(e);
    }
  }

  /**
   * It can't go on.
   *
   * @param error what was thrown while it was served
   */
  protected final void failInService(Throwable error) {
    fail("it can't go on: " + FluxCclException.from(error).getMessage(), error);
  }

  /** Goes on with everything; gives how much was done. */
  protected abstract int doWork();

  /** Ends what had its time; called again and again. */
  protected abstract void checkDeadlines();

  @Override
  public final void end(FluxCclException reason) {
    if (setFailure(reason)) {
      agent.execute(() -> endWaiting(reason));
    }
  }

  private void endWaiting(FluxCclException reason) {
    try {
      afterEnd(reason);
    } finally {
      // Nobody waits in vain, whatever can't be closed.
      waiters.fail(reason);
      tellFailed();
    }
  }

  /** Closes what there is; a task of the agent. */
  protected abstract void afterEnd(FluxCclException reason);
}
