// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport;

import io.fluxccl.Deadline;
import io.fluxccl.Experimental;
import io.fluxccl.FluxCclException;
import io.fluxccl.concurrent.AgentThread;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.locks.LockSupport;

/**
 * For transports: the base of connections that an {@link AgentThread} serves. Posts go into a
 * queue; the agent completes the futures of flushes.
 */
@Experimental
public abstract class AgentConnection extends ConnectionEnd {
  private static final long FULL_QUEUE_NAP_NS = 20_000;

  private final AgentThread agent;
  private final FlushWaiters waiters = new FlushWaiters(this::flushTimeout);

  /**
   * Creates an open connection.
   *
   * @param transport its transport
   * @param rank the rank of this end
   * @param remoteRank the rank of the other end
   * @param tag its tag
   * @param agent the thread that serves it
   */
  protected AgentConnection(
      Transport transport, int rank, int remoteRank, int tag, AgentThread agent) {
    super(transport, rank, remoteRank, tag);
    this.agent = agent;
  }

  /** Returns the awaited flushes. Called by the agent. */
  protected final FlushWaiters waiters() {
    return waiters;
  }

  /** Queues a flush and returns its ticket, or 0 once the queue is closed. */
  protected abstract long postFlush();

  /** Makes the transport process the queue soon. Called after each post. */
  protected abstract void posted();

  /** Returns whether the queue is so long that posters should wait. */
  protected abstract boolean isFull();

  @Override
  public final long beginFlush() {
    long ticket = checkedFlush();
    posted();
    return ticket;
  }

  private long checkedFlush() {
    checkWorking();
    long ticket = postFlush();
    if (ticket == 0) {
      checkWorking();
    }
    return ticket;
  }

  @Override
  public final CompletableFuture<Void> flush(Duration timeout) {
    Deadline deadline = Deadline.after(timeout);
    long ticket;
    try {
      ticket = checkedFlush();
    } catch (FluxCclException e) {
      return CompletableFuture.failedFuture(e);
    }
    CompletableFuture<Void> waiter = waiters.add(ticket, deadline);
    posted();
    // A failure since the check may have missed this waiter; this thread then sees the failure.
    FluxCclException reason = failure();
    if (reason != null) {
      waiter.completeExceptionally(reason);
    }
    return waiter;
  }

  /**
   * Blocks a poster that is tens of thousands of posts ahead of the device, until the device has
   * caught up or the connection has failed. Never blocks the agent.
   */
  protected final void awaitRoom() {
    while (isFull() && !hasFailed() && !agent.isCurrentThread()) {
      LockSupport.parkNanos(this, FULL_QUEUE_NAP_NS);
    }
  }

  /**
   * Calls {@link #doWork}; an exception fails this connection and no other. Called by the agent.
   *
   * @return the work count
   */
  public final int serve() {
    try {
      return doWork();
    } catch (Throwable e) {
      failInService(e);
      return 0;
    }
  }

  /**
   * Calls {@link #checkDeadlines}; an exception fails this connection and no other. Called by the
   * agent.
   */
  public final void serveDeadlines() {
    try {
      checkDeadlines();
    } catch (Throwable e) {
      failInService(e);
    }
  }

  /**
   * Fails the connection because serving it threw an exception.
   *
   * @param error the exception
   */
  protected final void failInService(Throwable error) {
    fail("it can't continue: " + FluxCclException.from(error).getMessage(), error);
  }

  /** Advances all posts and flushes, and returns the work count. */
  protected abstract int doWork();

  /** Fails flushes and connects whose deadline has passed. The agent calls it periodically. */
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
      // Awaited flushes fail even if closing a resource throws an exception.
      waiters.fail(reason);
      tellFailed();
    }
  }

  /** Frees the connection's resources. Called once, by a task of the agent. */
  protected abstract void afterEnd(FluxCclException reason);
}
