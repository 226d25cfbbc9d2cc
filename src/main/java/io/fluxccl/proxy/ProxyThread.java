// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.proxy;

import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.Timeout;
import io.fluxccl.concurrent.AgentThread;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicLong;

/** The thread of a {@link Proxy} between one start and its stop. */
final class ProxyThread extends AgentThread {
  /** The time within which a handler that still runs at the end of the stop timeout must return. */
  static final Duration GRACE = Duration.ofSeconds(1);

  private final Proxy proxy;
  private final CompletableFuture<Void> initialised = new CompletableFuture<>();

  private final AtomicLong cycles = new AtomicLong();
  private final AtomicLong busyCycles = new AtomicLong();

  // Guarded by this.
  private long seenCycles;
  private long seenBusyCycles;

  ProxyThread(ProxyOptions options, Proxy proxy) {
    super(options.name(), options.idleStrategy().get());
    this.proxy = proxy;
  }

  @Override
  protected void begin() {
    try {
      proxy.onStart();
      initialised.complete(null);
    } catch (Throwable e) {
      proxy.ending = true;
      initialised.completeExceptionally(e);
    }
  }

  @Override
  public int doWork() {
    if (proxy.ending) {
      end(proxy::onClose);
      return 1;
    }
    if (Thread.interrupted()) {
      onInterrupt();
    }
    int work = proxy.cycle();
    // Ordered stores of the only writer, which cost as much as plain ones; any thread reads them.
    cycles.lazySet(cycles.getPlain() + 1);
    if (work > 0) {
      busyCycles.lazySet(busyCycles.getPlain() + 1);
    }
    return work;
  }

  /** Returns the share of cycles since the last call that found work; 0 if there was none. */
  synchronized double duty() {
    long allNow = cycles.get();
    long busyNow = busyCycles.get();
    long all = allNow - seenCycles;
    double duty = all == 0 ? 0 : Math.min(1, (double) (busyNow - seenBusyCycles) / all);
    seenCycles = allNow;
    seenBusyCycles = busyNow;
    return duty;
  }

  /** Reports an interrupt that a handler has left set or another thread has sent. */
  @Override
  protected void onInterrupt() {
    proxy.errors.loop(
        InvalidUsage.of(
            "%s was interrupted and continues; to end it, call Proxy.stop()", proxy.describe()));
  }

  /**
   * Waits until the initialiser has run.
   *
   * @throws FluxCclException the initialiser's failure
   * @throws Timeout if the initialiser did not return in time
   */
  void awaitInitialised() {
    Duration limit = Deadline.DEFAULT_TIMEOUT;
    try {
      initialised.orTimeout(limit.toNanos(), TimeUnit.NANOSECONDS).join();
    } catch (CompletionException e) {
      if (e.getCause() instanceof TimeoutException) {
        throw Timeout.of(
            FluxCclException.NO_RANK,
            "%s threadInit did not return within %s",
            proxy.describe(),
            limit);
      }
      throw FluxCclException.from(e.getCause());
    }
  }

  /**
   * Waits for the thread's end. Interrupts a thread that is late, and then waits once more.
   *
   * @param deadline the time after which the thread is late
   * @throws Timeout if its handler has not returned although it was interrupted
   */
  void join(Deadline deadline) {
    wake();
    if (awaitEnd(deadline)) {
      return;
    }
    interrupt();
    if (!awaitEnd(Deadline.after(GRACE))) {
      throw Timeout.of(
          FluxCclException.NO_RANK,
          "%s did not end within %s: its handler has not returned from the trigger at position %s;"
              + " handlers must not block",
          proxy.describe(),
          deadline.timeout().plus(GRACE),
          proxy.handling());
    }
  }
}
