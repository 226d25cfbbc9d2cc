// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.proxy;

import io.fluxccl.Aborted;
import io.fluxccl.Deadline;
import io.fluxccl.DeviceFailure;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.Timeout;
import io.fluxccl.concurrent.AgentThread;
import io.fluxccl.concurrent.Lifecycle;
import io.fluxccl.concurrent.SpinPolicy;
import io.fluxccl.trace.FlightEvents;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicLong;
import org.agrona.concurrent.Agent;
import org.agrona.concurrent.AgentTerminationException;
import org.agrona.concurrent.IdleStrategy;

/**
 * Takes triggers from a {@link Fifo} and passes them to a {@link ProxyHandler}, in order, one
 * thread at a time. It runs on a thread of its own, between {@link #start()} and {@link #stop()},
 * or is stepped by hand:
 *
 * <pre>
 *   try (Proxy proxy = new Proxy(fifo, handler, ProxyOptions.defaults());
 *       AgentInvoker stepper = new AgentInvoker(error -&gt; fail(error), null, proxy)) {
 *     stepper.start();
 *     producer.push(first, second);
 *     stepper.invoke();   // handles it
 *   }
 * </pre>
 *
 * <p>Producers poll the tail of the ring to learn that a trigger was handled. The proxy publishes
 * the tail at the end of a batch, or at once if the handler asks for it.
 *
 * <p>Every wait is bounded. A thread that does not end is reported and remains as a daemon; its
 * ring is not freed.
 */
public final class Proxy implements Agent, AutoCloseable {
  private final Fifo fifo;
  private final ProxyHandler handler;
  private final ProxyOptions options;
  private final ProxyDuty duty;
  private final int batch;
  private final Lifecycle lifecycle;

  /** The thread of the last start; null after a stop. Guarded by this object's lock for writing. */
  private volatile ProxyThread thread;

  /** True if the loop must end. Set by the caller of stop or close, or by a handler's STOP. */
  private volatile boolean ending;

  /** True while the agent is between onStart and onClose, on any thread. */
  private volatile boolean active;

  /** True if a handler's STOP ends the loop; queued triggers then stay queued. */
  private boolean stoppedByHandler;

  /** The position being handled, or -1. It is used to report a thread that is stuck. */
  private final AtomicLong handling = new AtomicLong(-1);

  /**
   * Creates a proxy that is not running.
   *
   * @param fifo the ring to take triggers from; closed with the proxy
   * @param handler handles the triggers
   * @param options the settings
   */
  public Proxy(Fifo fifo, ProxyHandler handler, ProxyOptions options) {
    this.fifo = fifo;
    this.handler = handler;
    this.options = options;
    this.duty = options.duty();
    this.batch = options.batch();
    this.lifecycle = new Lifecycle("proxy=" + options.name());
    lifecycle.own(fifo);
  }

  /** Returns the ring from which this proxy takes triggers. */
  public Fifo fifo() {
    return fifo;
  }

  /**
   * Starts the thread and returns when its initialiser has run. Has no effect if the thread runs
   * already. May be called again after {@link #stop()}.
   *
   * @throws InvalidUsage if the proxy is closed, or being stepped by hand
   * @throws io.fluxccl.DeviceFailure if the initialiser failed
   * @throws Timeout if the initialiser did not return in time
   */
  public void start() {
    refuseOwnThread("start");
    synchronized (this) {
      lifecycle.checkOpen();
      if (hasThread()) {
        if (!ending) {
          return;
        }
        thread.join(Deadline.after(options.stopTimeout())); // a handler has just returned STOP
      }
      if (active) {
        throw InvalidUsage.of(
            "%s is being stepped by hand; close its AgentInvoker before the start", describe());
      }
      launch();
    }
  }

  private void launch() {
    ending = false;
    ProxyThread started = new ProxyThread();
    thread = started; // set before the start, so that onStart can identify its thread
    try {
      started.start();
      started.awaitInitialised();
    } catch (RuntimeException | Error failure) {
      ending = true;
      started.interrupt();
      if (started.awaitEnd(Deadline.after(ProxyThread.GRACE))) {
        thread = null;
      }
      throw failure;
    }
  }

  /** Returns whether the thread runs and takes triggers. */
  public boolean isRunning() {
    return hasThread() && active && !ending;
  }

  private boolean hasThread() {
    ProxyThread current = thread;
    return current != null && !current.isTerminated();
  }

  /**
   * Ends the thread and returns when it has ended. The thread first handles all committed triggers
   * and finishes pending work of the duty, for at most {@link ProxyOptions#stopTimeout()}.
   * Remaining triggers stay in the ring for the next start, and the first of them is reported to
   * the error handler. Waits for at most that time plus 2 s. Has no effect if there is no thread.
   *
   * @throws InvalidUsage if called from the proxy thread, which would wait for itself: a handler
   *     returns {@link ProxyHandlerResult#STOP} instead
   * @throws Timeout if a handler did not return, although interrupted; stop may be called again
   */
  public void stop() {
    refuseOwnThread("stop");
    synchronized (this) {
      if (thread != null) {
        ending = true;
        thread.join(Deadline.after(options.stopTimeout().plus(ProxyThread.GRACE)));
        thread = null;
      }
    }
  }

  /**
   * Stops and frees the ring. The first queued trigger is reported to the error handler as {@link
   * Aborted}. Idempotent.
   *
   * @throws InvalidUsage if called from the proxy thread, or while being stepped by hand
   * @throws Timeout if a handler did not return; the ring is then not freed, and close may be
   *     called again
   */
  @Override
  public void close() {
    refuseOwnThread("close");
    synchronized (this) {
      stop();
      if (active) {
        throw InvalidUsage.of(
            "%s is being stepped by hand; close its AgentInvoker first", describe());
      }
      if (!lifecycle.beginClose()) {
        return;
      }
      ending = true;
      if (fifo.poll()) {
        reportQueued(
            Aborted.of(
                FluxCclException.NO_RANK,
                "%s closed with %s triggers queued",
                describe(),
                fifo.committed()));
      }
      lifecycle.closeChildren();
    }
  }

  private void refuseOwnThread(String operation) {
    if (isOwnThread()) {
      throw InvalidUsage.of(
          "%s %s on the proxy thread; let the handler return STOP", describe(), operation);
    }
  }

  private boolean isOwnThread() {
    ProxyThread current = thread;
    return current != null && current.isCurrentThread();
  }

  /** Returns the share of the thread's cycles since the last call that found work. Any thread. */
  public double duty() {
    ProxyThread current = thread;
    return current == null ? 0 : current.duty();
  }

  private String describe() {
    return "proxy=" + options.name();
  }

  /**
   * Runs the initialiser. Called from the proxy thread, or from the thread that steps by hand,
   * before the first cycle.
   */
  @Override
  public void onStart() {
    if (active) {
      throw InvalidUsage.of("%s has been started already; close that first", describe());
    }
    boolean stepped = !isOwnThread();
    if (stepped) {
      beginSteps();
    }
    try {
      options.threadInit().run();
    } catch (FluxCclException failure) {
      throw failure;
    } catch (Throwable error) {
      throw new DeviceFailure(
          0, "THREAD_INIT", describe() + " threadInit failed with " + error, error);
    }
    stoppedByHandler = false;
    active = true;
    if (stepped) {
      SpinPolicy.enter(); // waiting kernels must leave a core to this thread, or yield
    }
  }

  private synchronized void beginSteps() {
    lifecycle.checkOpen();
    if (hasThread()) {
      throw InvalidUsage.of("%s runs on its own thread; stop it first", describe());
    }
    thread = null;
    ending = false;
  }

  /**
   * Runs one duty cycle: a batch of triggers, then the duty. Called by the thread that steps by
   * hand. Allocates nothing, takes no lock, never waits.
   *
   * @return the number of triggers handled plus the work count of the duty
   * @throws AgentTerminationException if the loop is to end
   * @throws InvalidUsage if stepped by hand while the proxy runs on its own thread
   */
  @Override
  public int doWork() {
    if (ending) {
      throw new AgentTerminationException(true);
    }
    if (thread != null) {
      throw InvalidUsage.of("%s runs on its own thread; stop it to step it by hand", describe());
    }
    return cycle();
  }

  /** Runs one duty cycle, on any thread. */
  private int cycle() {
    return drain(batch) + pollDuty();
  }

  /**
   * Handles the triggers committed so far, unless a handler asked to stop, and continues the duty
   * while it has pending work. Both take at most {@link ProxyOptions#stopTimeout()}. Called from
   * the proxy thread, or from the thread that steps by hand, after the last cycle.
   */
  @Override
  public void onClose() {
    if (!active) {
      return;
    }
    Deadline deadline = Deadline.after(options.stopTimeout());
    // Triggers committed before the stop lie within one ring from here. Producers that keep pushing
    // after them can't keep the loop alive.
    int left = fifo.size();
    while (left > 0 && !stoppedByHandler && !deadline.expired()) {
      int handled = drain(1);
      pollDuty();
      if (handled == 0) {
        break;
      }
      left -= handled;
    }
    if (!stoppedByHandler && fifo.poll()) {
      reportQueued(unhandled(deadline));
    }
    finishDuty(deadline);
    active = false;
    if (!isOwnThread()) {
      SpinPolicy.exit();
    }
  }

  /** Finishes pending work of the duty, because producers may wait for it too. */
  private void finishDuty(Deadline deadline) {
    try {
      IdleStrategy idle = options.idleStrategy().get();
      while (duty.isPending()) {
        boolean late = deadline.expired();
        idle.idle(pollDuty());
        if (late && duty.isPending()) {
          duty.giveUp();
          return;
        }
      }
    } catch (Throwable error) {
      reportLoop(error);
    }
  }

  @Override
  public String roleName() {
    return options.name();
  }

  /** Handles up to a number of triggers, publishes the tail, and returns the number handled. */
  private int drain(int limit) {
    int handled = 0;
    boolean published = true;
    while (handled < limit && !stoppedByHandler && fifo.poll()) {
      ProxyHandlerResult result = handle(fifo.position(), fifo.first(), fifo.second());
      if ((fifo.position() & (FlightEvents.TRIGGER_SAMPLE - 1)) == 0
          && FlightEvents.areTriggersWanted()) {
        FlightEvents.trigger(options.name(), fifo.position(), fifo.first(), fifo.second());
      }
      fifo.pop();
      handled++;
      if (result == ProxyHandlerResult.STOP) {
        // Set before the tail is published, because its readers may then start this proxy again.
        stoppedByHandler = true;
        ending = true;
      }
      published = result != ProxyHandlerResult.CONTINUE;
      if (published) {
        fifo.publishTail();
      }
    }
    if (!published) {
      fifo.publishTail();
    }
    return handled;
  }

  private ProxyHandlerResult handle(long position, long first, long second) {
    // Opaque, without an ordering partner: it is read only to report a thread that is stuck.
    handling.setOpaque(position);
    try {
      ProxyHandlerResult result = handler.handle(first, second, position);
      if (result != null) {
        return result;
      }
      report(position, first, second, new InvalidUsage("proxy handler returned null"));
    } catch (Throwable error) {
      report(position, first, second, error);
    } finally {
      handling.setOpaque(-1);
    }
    return ProxyHandlerResult.CONTINUE;
  }

  private int pollDuty() {
    try {
      return duty.doWork();
    } catch (Throwable error) {
      reportLoop(error);
      return 0;
    }
  }

  private FluxCclException unhandled(Deadline deadline) {
    String advice =
        " still queued; start it again to handle them, stop the producers first, or give";
    String message = describe() + " stopped with triggers=" + fifo.committed() + advice;
    message += " it more than stopTimeout=" + options.stopTimeout();
    return deadline.expired()
        ? new Timeout(FluxCclException.NO_RANK, message)
        : new Aborted(FluxCclException.NO_RANK, message);
  }

  private void reportQueued(FluxCclException error) {
    report(fifo.position(), fifo.first(), fifo.second(), error);
  }

  /**
   * Reports that a trigger failed, or was not handled. If the handler of errors throws, both errors
   * are logged and the loop continues.
   */
  private void report(long position, long first, long second, Throwable error) {
    try {
      options.errorHandler().onTriggerError(position, first, second, error);
    } catch (Throwable inHandler) {
      inHandler.addSuppressed(error);
      ProxyErrorHandler.LOGGING.onTriggerError(position, first, second, inHandler);
    }
  }

  /** Reports an error that belongs to no trigger, as {@link #report}. */
  private void reportLoop(Throwable error) {
    try {
      options.errorHandler().onLoopError(error);
    } catch (Throwable inHandler) {
      inHandler.addSuppressed(error);
      ProxyErrorHandler.LOGGING.onLoopError(inHandler);
    }
  }

  /** The thread of a {@link Proxy} between one start and its stop. */
  private final class ProxyThread extends AgentThread {
    /**
     * The time within which a handler that still runs at the end of the stop timeout must return.
     */
    static final Duration GRACE = Duration.ofSeconds(1);

    private final CompletableFuture<Void> initialised = new CompletableFuture<>();

    private final AtomicLong cycles = new AtomicLong();
    private final AtomicLong busyCycles = new AtomicLong();

    // Guarded by this.
    private long seenCycles;
    private long seenBusyCycles;

    ProxyThread() {
      super(options.name(), options.idleStrategy().get());
    }

    @Override
    protected void begin() {
      try {
        Proxy.this.onStart();
        initialised.complete(null);
      } catch (Throwable e) {
        ending = true;
        initialised.completeExceptionally(e);
      }
    }

    @Override
    public int doWork() {
      if (ending) {
        end(Proxy.this::onClose);
        return 1;
      }
      if (Thread.interrupted()) {
        onInterrupt();
      }
      int work = Proxy.this.cycle();
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
      reportLoop(
          InvalidUsage.of(
              "%s was interrupted and continues; to end it, call Proxy.stop()", describe()));
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
              describe(),
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
            "%s did not end within %s: its handler has not returned from the trigger at position"
                + " %s; handlers must not block",
            describe(),
            deadline.timeout().plus(GRACE),
            handling.getOpaque());
      }
    }
  }
}
