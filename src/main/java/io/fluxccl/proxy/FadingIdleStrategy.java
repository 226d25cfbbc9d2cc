package io.fluxccl.proxy;

import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.agrona.concurrent.IdleStrategy;

/**
 * Idles less and less eagerly the longer there was no work: polls, yields, then sleeps shortly for
 * some tens of milliseconds, then longer. Unlike a back-off that doubles its sleep, it stays quick
 * as long as work comes now and then: where each side waits for the other's proxy, a sleep that
 * grows with the pause would make the next pause longer still.
 *
 * <p>Confined to one thread. Allocates nothing.
 */
final class FadingIdleStrategy implements IdleStrategy {
  /** How often it polls where cores are few. */
  static final int FEW_POLLS = 20;

  /** About a millisecond of polling, where a core is to spare. */
  static final int MANY_POLLS = 20_000;

  private static final int YIELDS = 200;
  private static final int SHORT_SLEEPS = 500;
  private static final long SHORT_SLEEP_NANOS = TimeUnit.MICROSECONDS.toNanos(20);
  private static final long LONG_SLEEP_NANOS = TimeUnit.MILLISECONDS.toNanos(2);

  private final int polls;
  private int idled;

  /** One that polls so often before it yields. */
  FadingIdleStrategy(int polls) {
    this.polls = polls;
  }

  @Override
  public void idle(int workCount) {
    if (workCount > 0) {
      reset();
    } else {
      idle();
    }
  }

  @Override
  public void idle() {
    if (idled < polls) {
      Thread.onSpinWait();
    } else if (idled < polls + YIELDS) {
      Thread.yield();
    } else if (idled < polls + YIELDS + SHORT_SLEEPS) {
      LockSupport.parkNanos(SHORT_SLEEP_NANOS);
    } else {
      LockSupport.parkNanos(LONG_SLEEP_NANOS);
      return;
    }
    idled++;
  }

  @Override
  public void reset() {
    idled = 0;
  }

  @Override
  public String alias() {
    return "fading";
  }
}
