package io.fluxccl.transport.ethernet;

import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.netty.channel.EventLoop;
import io.netty.util.concurrent.ScheduledFuture;
import java.util.ArrayDeque;
import java.util.Queue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;

/**
 * Those who wait for a flush. Any thread adds; all else happens on the event loop. One timer serves
 * them all, set for the earliest deadline.
 */
final class FlushWaiters {
  private final EventLoop loop;
  private final Function<Deadline, FluxCclException> timeout;
  private final Queue<Waiter> arrivals = new ConcurrentLinkedQueue<>();
  private final ArrayDeque<Waiter> waiting = new ArrayDeque<>();
  private ScheduledFuture<?> timer;
  private long timerNanos;

  /**
   * @param loop the event loop
   * @param timeout makes the error of one whose deadline passed
   */
  FlushWaiters(EventLoop loop, Function<Deadline, FluxCclException> timeout) {
    this.loop = loop;
    this.timeout = timeout;
  }

  /** Adds one, before its flush is posted. */
  CompletableFuture<Void> add(long ticket, Deadline deadline) {
    Waiter waiter = new Waiter(ticket, deadline);
    arrivals.add(waiter);
    return waiter;
  }

  /** Ends those whose flush is done, and takes in those who are new. */
  void advance(long flushed) {
    for (Waiter arrived = arrivals.poll(); arrived != null; arrived = arrivals.poll()) {
      waiting.add(arrived);
      setTimer(arrived.deadline.remainingNanos());
    }
    // Completing one runs its continuations, which may come back here: so the queue is turned once
    // around, with each waiter either in it or done.
    for (int left = waiting.size(); left > 0; left--) {
      Waiter waiter = waiting.poll();
      if (waiter == null) {
        break;
      }
      if (waiter.ticket > flushed && !waiter.isDone()) {
        waiting.add(waiter);
      } else {
        waiter.complete(null);
      }
    }
  }

  /** Ends all with that error. */
  void fail(FluxCclException reason) {
    for (Waiter arrived = arrivals.poll(); arrived != null; arrived = arrivals.poll()) {
      waiting.add(arrived);
    }
    for (Waiter waiter = waiting.poll(); waiter != null; waiter = waiting.poll()) {
      waiter.completeExceptionally(reason);
    }
    if (timer != null) {
      timer.cancel(false);
      timer = null;
    }
  }

  /** How many wait. */
  int size() {
    return waiting.size() + arrivals.size();
  }

  private void setTimer(long delayNanos) {
    long nanos = System.nanoTime() + delayNanos;
    if (timer != null) {
      if (timerNanos - nanos <= 0) {
        return;
      }
      timer.cancel(false);
    }
    timerNanos = nanos;
    timer = loop.schedule(this::expire, delayNanos, TimeUnit.NANOSECONDS);
  }

  private void expire() {
    timer = null;
    long earliest = Long.MAX_VALUE;
    for (int left = waiting.size(); left > 0; left--) {
      Waiter waiter = waiting.poll();
      if (waiter == null) {
        break;
      }
      if (waiter.isDone()) {
        continue;
      }
      if (waiter.deadline.expired()) {
        waiter.completeExceptionally(timeout.apply(waiter.deadline));
      } else {
        earliest = Math.min(earliest, waiter.deadline.remainingNanos());
        waiting.add(waiter);
      }
    }
    if (earliest != Long.MAX_VALUE) {
      setTimer(earliest);
    }
  }

  private final class Waiter extends CompletableFuture<Void> {
    private final long ticket;
    private final Deadline deadline;

    Waiter(long ticket, Deadline deadline) {
      this.ticket = ticket;
      this.deadline = deadline;
    }

    @Override
    public boolean cancel(boolean mayInterruptIfRunning) {
      boolean cancelled = super.cancel(mayInterruptIfRunning);
      if (cancelled) {
        try {
          loop.execute(() -> waiting.remove(this));
        } catch (RejectedExecutionException e) {
          // The context is closed, and its waiters are gone with it.
          return true;
        }
      }
      return cancelled;
    }

    @Override
    public <U> CompletableFuture<U> newIncompleteFuture() {
      return new CompletableFuture<>();
    }
  }
}
