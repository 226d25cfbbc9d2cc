package io.fluxccl.transport;

import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import java.util.ArrayDeque;
import java.util.Iterator;
import java.util.Queue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.function.Function;

/**
 * For transports: those who wait for a flush. Any thread adds; all else is for the one thread that
 * serves the connection.
 */
public final class FlushWaiters {
  private final Function<Deadline, FluxCclException> timeout;
  private final Queue<Waiter> arrivals = new ConcurrentLinkedQueue<>();
  private final ArrayDeque<Waiter> waiting = new ArrayDeque<>();

  private record Waiter(long ticket, Deadline deadline, CompletableFuture<Void> future) {}

  /**
   * Nobody waits.
   *
   * @param timeout makes the error of one whose deadline passed
   */
  public FlushWaiters(Function<Deadline, FluxCclException> timeout) {
    this.timeout = timeout;
  }

  /**
   * Adds one.
   *
   * @param ticket of its flush
   * @param deadline by when
   * @return completes when the flush is done, with an error when time is up or all failed
   */
  public CompletableFuture<Void> add(long ticket, Deadline deadline) {
    Waiter waiter = new Waiter(ticket, deadline, new CompletableFuture<>());
    arrivals.add(waiter);
    return waiter.future();
  }

  /** Whether nobody waits. */
  public boolean isEmpty() {
    return waiting.isEmpty() && arrivals.isEmpty();
  }

  /**
   * Ends those whose flush is done, and takes in those who are new.
   *
   * @param flushed the highest ticket that is done
   * @return how many ended
   */
  public int advance(long flushed) {
    admit();
    int ended = 0;
    // Tickets are taken before waiters are added, so theirs may be a little out of order: those
    // behind one that goes on waiting are seen when it goes, which is soon.
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
   * Ends those whose deadline has passed.
   *
   * @param flushed the highest ticket that is done
   */
  public void expire(long flushed) {
    if (waiting.isEmpty()) {
      return;
    }
    // Completing one runs what is chained to it, which may add, but not here: only to arrivals.
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
   * Ends all with that error.
   *
   * @param reason why
   */
  public void fail(FluxCclException reason) {
    admit();
    for (Waiter waiter = waiting.poll(); waiter != null; waiter = waiting.poll()) {
      waiter.future().completeExceptionally(reason);
    }
  }
}
