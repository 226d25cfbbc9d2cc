package io.fluxccl.transport;

import io.fluxccl.concurrent.UseCount;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.atomic.AtomicBoolean;
import reactor.core.scheduler.Schedulers;

/**
 * For transports: counts the posts that use a resource. Closing refuses new ones and never takes
 * the resource away under one of them: the last user frees it. Never waits; thread-safe.
 */
public class PostUseCount extends UseCount implements AutoCloseable {
  private final AtomicBoolean closed = new AtomicBoolean();

  /** For subclasses, which override {@link #lastUserLeft()}. */
  protected PostUseCount() {}

  /**
   * Creates an open count without users.
   *
   * @param free frees the resource; runs once, on the thread that closes or of the last user
   */
  public PostUseCount(Runnable free) {
    super(free);
  }

  /**
   * Keeps the resource until {@link #release()}, unless it is closed. A thread that loses a race
   * with {@link #close()} may still enter while another user keeps the resource.
   *
   * @return whether the resource was open
   */
  public final boolean enter() {
    return !closed.get() && tryRetain();
  }

  /** Returns whether the resource was closed. */
  public final boolean isClosed() {
    return closed.get();
  }

  /** Refuses new users, and frees the resource once it has none. Idempotent. */
  @Override
  public void close() {
    if (closed.compareAndSet(false, true)) {
      try {
        closing();
      } finally {
        release();
      }
    }
  }

  /** Runs when the resource refuses new users, before it can be freed. */
  protected void closing() {}

  /**
   * Runs a task that may block: here, or on Reactor's elastic threads if this thread must not
   * block, as a proxy's.
   *
   * @param task what to run
   */
  public static void runBlocking(Runnable task) {
    if (Schedulers.isInNonBlockingThread()) {
      try {
        Schedulers.boundedElastic().schedule(task);
        return;
      } catch (RejectedExecutionException e) {
        // The JVM shuts down: nothing else would run the task.
      }
    }
    task.run();
  }
}
