package io.fluxccl.transport.cudaipc;

import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.atomic.AtomicInteger;
import reactor.core.scheduler.Schedulers;

/**
 * Counts the calls that are using a thing, so that closing never takes it away under one of them:
 * the last to leave has it let go of, on a thread that may block, because it may be the proxy's.
 * Never waits; thread-safe.
 */
final class UserCount {
  private static final int CLOSED = Integer.MIN_VALUE;

  /** How many use it; that and {@link #CLOSED} once it is closed. */
  private final AtomicInteger users = new AtomicInteger();

  private final Runnable letGo;

  /**
   * @param letGo run once, by whoever closes when nobody is there, or behind the last to leave
   */
  UserCount(Runnable letGo) {
    this.letGo = letGo;
  }

  /** Keeps the thing until {@link #leave()}, unless it is closed: then false. */
  boolean enter() {
    int before;
    do {
      before = users.get();
      if (before < 0) {
        return false;
      }
    } while (!users.compareAndSet(before, before + 1));
    return true;
  }

  /** Ends what {@link #enter()} began. */
  void leave() {
    if (users.decrementAndGet() == CLOSED) {
      try {
        Schedulers.boundedElastic().schedule(letGo);
      } catch (RejectedExecutionException e) {
        letGo.run();
      }
    }
  }

  /** Lets nobody in any more. Idempotent. */
  void close() {
    int before;
    do {
      before = users.get();
      if (before < 0) {
        return;
      }
    } while (!users.compareAndSet(before, before + CLOSED));
    if (before == 0) {
      letGo.run();
    }
  }
}
