package io.fluxccl.transport.ethernet;

import io.fluxccl.FluxCclException;
import io.fluxccl.concurrent.SpinPolicy;
import io.netty.channel.EventLoop;
import io.netty.channel.SingleThreadEventLoop;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Looks, from the event loop, whether the device has done the copies that are waited for. While
 * there are any, each turn of the loop serves the sockets, without waiting for them, and then looks
 * once; when nothing has moved for a while, the turns get rarer. Confined to the event loop.
 */
final class CopyPoll {
  private static final Logger LOGGER = LoggerFactory.getLogger(CopyPoll.class);

  private static final long SPIN_NANOS = TimeUnit.MICROSECONDS.toNanos(200);
  private static final long DOZE_NANOS = TimeUnit.MICROSECONDS.toNanos(50);
  private static final long STALL_NANOS = TimeUnit.MILLISECONDS.toNanos(5);

  /** A connection that waits for copies. */
  interface Pending {
    /** Looks, and goes on with what is done; returns whether anything was. */
    boolean advance();

    /** Whether there is still something to wait for. */
    boolean isPending();

    /** The copies can't be waited for: what the device, or {@link #advance()}, threw. */
    void failed(FluxCclException cause);
  }

  private final EventLoop loop;
  private final Runnable stalled;
  private final List<Pending> waiting = new ArrayList<>();
  // The loop runs tasks until there are none, and only then looks at its sockets. So a look is
  // queued behind all tasks, and asks for the next turn by an ordinary task.
  private final Runnable look = this::look;
  private final Runnable turn = this::lookBehindTasks;
  private boolean scheduled;
  private boolean closed;
  private long movedNanos;

  /**
   * @param stalled told every 5 ms in which nothing has moved, to see whether the device works
   */
  CopyPoll(EventLoop loop, Runnable stalled) {
    this.loop = loop;
    this.stalled = stalled;
  }

  void add(Pending pending) {
    if (closed || waiting.contains(pending)) {
      return;
    }
    waiting.add(pending);
    movedNanos = System.nanoTime();
    if (!scheduled) {
      scheduled = true;
      lookBehindTasks();
    }
  }

  /** Ends all that wait. */
  void fail(FluxCclException cause) {
    List<Pending> failed = new ArrayList<>(waiting);
    waiting.clear();
    failed.forEach(pending -> fail(pending, cause));
  }

  private void fail(Pending pending, FluxCclException cause) {
    try {
      pending.failed(cause);
    } catch (Throwable e) {
      // The others are told and looked at all the same, and this one no more.
      LOGGER.warn("who waits for copies can't be told that they failed", e);
      waiting.remove(pending);
    }
  }

  void close() {
    closed = true;
    waiting.clear();
  }

  private void lookBehindTasks() {
    ((SingleThreadEventLoop) loop).executeAfterEventLoopIteration(look);
  }

  private void look() {
    boolean moved = false;
    try {
      moved = lookAtAll();
    } finally {
      if (waiting.isEmpty()) {
        scheduled = false;
      } else {
        again(moved);
      }
    }
  }

  private boolean lookAtAll() {
    boolean moved = false;
    for (int i = waiting.size() - 1; i >= 0; i--) {
      // Going on may end others that wait.
      Pending pending = i < waiting.size() ? waiting.get(i) : null;
      if (pending != null) {
        moved |= advance(pending);
        if (!pending.isPending()) {
          waiting.remove(pending);
        }
      }
    }
    return moved;
  }

  private void again(boolean moved) {
    long now = System.nanoTime();
    if (moved) {
      movedNanos = now;
    }
    if (now - movedNanos < SPIN_NANOS) {
      if (SpinPolicy.isCrowded()) {
        Thread.yield();
      }
      loop.execute(turn);
      return;
    }
    if (now - movedNanos >= STALL_NANOS) {
      movedNanos = now - SPIN_NANOS;
      try {
        stalled.run();
      } catch (Throwable e) {
        LOGGER.warn("the device can't be asked whether it works", e);
      }
    }
    loop.schedule(turn, DOZE_NANOS, TimeUnit.NANOSECONDS);
  }

  private boolean advance(Pending pending) {
    try {
      return pending.advance();
    } catch (Throwable e) {
      // The looks go on for the others.
      fail(pending, FluxCclException.from(e));
      return true;
    }
  }
}
