// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.concurrent;

import static java.util.concurrent.TimeUnit.SECONDS;

import io.fluxccl.FluxCclException;
import java.util.concurrent.Callable;
import java.util.concurrent.Executor;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.atomic.AtomicInteger;
import reactor.core.scheduler.Schedulers;

/**
 * Runs tasks that may block, and users' continuations, on daemon threads of the JVM: as many as are
 * needed, each kept for two seconds. Reactor's elastic threads are not used, because their number
 * is limited. A test that installs virtual time also replaces them, and loses tasks when it ends.
 */
public final class BlockingTasks {
  private static final AtomicInteger THREADS = new AtomicInteger();

  /** Runs each task on a thread that may block; never refuses one. */
  public static final Executor EXECUTOR = BlockingTasks::execute;

  private static final Executor THREAD_POOL =
      new ThreadPoolExecutor(
          0, Integer.MAX_VALUE, 2, SECONDS, new SynchronousQueue<>(), BlockingTasks::thread);

  private BlockingTasks() {}

  /**
   * Returns a task for a Mono: a fatal error of the JVM, such as that memory is used up, becomes an
   * exception, because Reactor would throw the error and signal no subscriber.
   */
  public static <T> Callable<T> typed(Callable<T> task) {
    return () -> {
      try {
        return task.call();
      } catch (VirtualMachineError | LinkageError e) {
        throw FluxCclException.from(e);
      }
    };
  }

  private static void execute(Runnable task) {
    THREAD_POOL.execute(RankLog.inherit(task));
  }

  private static Thread thread(Runnable task) {
    Thread thread = new Thread(task, "fluxccl-blocking-" + THREADS.getAndIncrement());
    thread.setDaemon(true);
    return thread;
  }

  /**
   * Runs a task that may block: on this thread, or on another if this one must not block, such as a
   * proxy's thread.
   *
   * @param task the task to run
   */
  public static void run(Runnable task) {
    if (Schedulers.isInNonBlockingThread()) {
      EXECUTOR.execute(task);
    } else {
      task.run();
    }
  }
}
