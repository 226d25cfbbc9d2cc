// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import io.fluxccl.DeviceFailure;
import java.time.Duration;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Frees memory on its own thread while no kernel runs, for the reason in {@link LaunchGate}. If
 * kernels run without a gap for {@link #IDLE_WAIT}, it blocks new launches for at most {@link
 * #MAX_LAUNCH_BLOCK}, and repeats both steps.
 *
 * <p>Uses a JDK executor instead of an {@link io.fluxccl.concurrent.AgentThread}, because it does
 * not poll, and its thread ends after one second without tasks.
 */
final class DeferredFree {
  /** Time that it waits for a gap before it blocks launches. */
  static final Duration IDLE_WAIT = Duration.ofMillis(500);

  /** Longest time that it blocks launches, once per {@link #IDLE_WAIT}. */
  static final Duration MAX_LAUNCH_BLOCK = Duration.ofMillis(10);

  private static final long FIRST_PAUSE_NANOS = 50_000;
  private static final long LONGEST_PAUSE_NANOS = 2_000_000;
  private static final Logger LOG = LoggerFactory.getLogger(DeferredFree.class);

  private final Queue<Runnable> waiting = new ConcurrentLinkedQueue<>();
  private final ThreadPoolExecutor executor;

  DeferredFree(int gpu) {
    executor =
        new ThreadPoolExecutor(
            1,
            1,
            1,
            TimeUnit.SECONDS,
            new LinkedBlockingQueue<>(),
            task -> {
              Thread thread = new Thread(() -> run(task), "fluxccl-free-" + gpu);
              thread.setDaemon(true);
              return thread;
            });
    executor.allowCoreThreadTimeOut(true);
  }

  private static void run(Runnable loop) {
    PrimaryContext.relaxCapture();
    loop.run();
  }

  /** Runs the action asynchronously, after all actions submitted earlier. Failures are logged. */
  void execute(Runnable free) {
    waiting.add(free);
    executor.execute(this::runInAGap);
  }

  /**
   * Waits until all actions submitted earlier have run; for callers that need the memory.
   *
   * @return false if the time expired or the thread was interrupted
   */
  boolean await(Duration atMost) {
    CountDownLatch done = new CountDownLatch(1);
    executor.execute(done::countDown);
    try {
      return done.await(atMost.toNanos(), TimeUnit.NANOSECONDS);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      return false;
    }
  }

  private void runInAGap() {
    long pause = FIRST_PAUSE_NANOS;
    long idleWaitEnd = System.nanoTime() + IDLE_WAIT.toNanos();
    Duration launchBlock = Duration.ZERO;
    while (!waiting.isEmpty() && !LaunchGate.PROCESS.runWhenIdle(launchBlock, this::runWaiting)) {
      LockSupport.parkNanos(pause);
      pause = Math.min(2 * pause, LONGEST_PAUSE_NANOS);
      launchBlock = Duration.ZERO;
      if (System.nanoTime() - idleWaitEnd >= 0) {
        launchBlock = MAX_LAUNCH_BLOCK;
        idleWaitEnd = System.nanoTime() + IDLE_WAIT.toNanos();
      }
    }
  }

  /**
   * Runs at least one action, and further ones for at most {@link #MAX_LAUNCH_BLOCK}, because
   * launches are blocked.
   */
  private void runWaiting() {
    long began = System.nanoTime();
    do {
      runLogged(waiting.remove());
    } while (!waiting.isEmpty() && System.nanoTime() - began < MAX_LAUNCH_BLOCK.toNanos());
  }

  private static void runLogged(Runnable free) {
    try {
      free.run();
    } catch (RuntimeException | Error e) {
      if (e instanceof DeviceFailure failure && CudaError.isSticky(failure.status())) {
        LOG.debug("GPU memory is freed with its context, which is unusable", e);
      } else {
        LOG.warn("freeing GPU memory failed", e);
      }
    }
  }
}
