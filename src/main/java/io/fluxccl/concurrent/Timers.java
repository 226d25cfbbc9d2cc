// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.concurrent;

import static java.util.concurrent.TimeUnit.SECONDS;

import io.fluxccl.Deadline;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import reactor.core.scheduler.NonBlocking;
import reactor.core.scheduler.Scheduler;
import reactor.core.scheduler.Schedulers;

/**
 * The thread of time limits. It ends two seconds after the last time limit, so that it retains no
 * class loader of an application that has closed its groups. Reactor's own thread never ends.
 */
public final class Timers {
  private static final Scheduler REAL =
      Schedulers.fromExecutorService(executor(), "fluxccl-timers");

  private Timers() {}

  private static ScheduledThreadPoolExecutor executor() {
    ScheduledThreadPoolExecutor executor = new ScheduledThreadPoolExecutor(1, TimerThread::new);
    executor.setKeepAliveTime(2, SECONDS);
    executor.allowCoreThreadTimeOut(true);
    executor.setRemoveOnCancelPolicy(true);
    return executor;
  }

  /** Blocking this thread would delay all time limits, so Reactor's {@code block()} refuses to. */
  private static final class TimerThread extends Thread implements NonBlocking {
    TimerThread(Runnable task) {
      super(task, "fluxccl-timers");
      setDaemon(true);
    }
  }

  /** Returns Reactor's virtual time, if a test has installed it; else the thread of time limits. */
  public static Scheduler current() {
    Scheduler timers = Schedulers.single();
    return Deadline.isReal(timers) ? REAL : timers;
  }
}
