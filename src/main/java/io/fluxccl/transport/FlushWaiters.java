// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport;

import io.fluxccl.Deadline;
import io.fluxccl.Experimental;
import io.fluxccl.FluxCclException;
import io.fluxccl.NonblockingFuture;
import java.util.ArrayDeque;
import java.util.Iterator;
import java.util.Queue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.function.Function;

/**
 * For transports: the awaited flushes of a connection. Any thread may add a flush; only the thread
 * that serves the connection calls the other methods.
 */
@Experimental
public final class FlushWaiters {
  private final Function<Deadline, FluxCclException> timeout;
  private final Queue<Waiter> arrivals = new ConcurrentLinkedQueue<>();
  private final ArrayDeque<Waiter> waiting = new ArrayDeque<>();

  private record Waiter(long ticket, Deadline deadline, CompletableFuture<Void> future) {}

  /**
   * Creates an empty list.
   *
   * @param timeout creates the error of a flush whose deadline has passed
   */
  public FlushWaiters(Function<Deadline, FluxCclException> timeout) {
    this.timeout = timeout;
  }

  /**
   * Adds a flush.
   *
   * @param ticket the flush's ticket
   * @param deadline the time by which the flush must be done
   * @return a future that completes when the flush is done; it fails when time is up or all flushes
   *     are failed
   */
  public CompletableFuture<Void> add(long ticket, Deadline deadline) {
    Waiter waiter = new Waiter(ticket, deadline, NonblockingFuture.create());
    arrivals.add(waiter);
    return waiter.future();
  }

  /** Returns whether no flush is awaited. */
  public boolean isEmpty() {
    return waiting.isEmpty() && arrivals.isEmpty();
  }

  /**
   * Completes flushes that are done, and admits new ones.
   *
   * @param flushed the highest ticket that is done
   * @return the number of flushes completed
   */
  public int advance(long flushed) {
    admit();
    int ended = 0;
    // A thread takes its ticket before it adds its waiter, so tickets may be slightly out of order:
    // a waiter queued after a later ticket completes together with that one, soon.
    for (Waiter first = waiting.peek();
        first != null && (first.ticket() <= flushed || first.future().isDone());
        first = waiting.peek()) {
      waiting.poll();
      first.future().complete(null);
      ended++;
    }
    return ended;
  }

  private void admit() {
    for (Waiter arrived = arrivals.poll(); arrived != null; arrived = arrivals.poll()) {
      waiting.add(arrived);
    }
  }

  /**
   * Fails flushes whose deadline has passed.
   *
   * @param flushed the highest ticket that is done
   */
  public void expire(long flushed) {
    if (waiting.isEmpty()) {
      return;
    }
    // Completing a flush runs its continuations; waiters that these add go to arrivals only.
    for (Iterator<Waiter> waiters = waiting.iterator(); waiters.hasNext(); ) {
      Waiter waiter = waiters.next();
      if (waiter.ticket() <= flushed) {
        waiters.remove();
        waiter.future().complete(null);
      } else if (waiter.deadline().expired()) {
        waiters.remove();
        waiter.future().completeExceptionally(timeout.apply(waiter.deadline()));
      }
    }
  }

  /**
   * Fails all flushes.
   *
   * @param reason the failure
   */
  public void fail(FluxCclException reason) {
    admit();
    for (Waiter waiter = waiting.poll(); waiter != null; waiter = waiting.poll()) {
      waiter.future().completeExceptionally(reason);
    }
  }
}
