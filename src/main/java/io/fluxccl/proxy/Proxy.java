package io.fluxccl.proxy;

import io.fluxccl.Aborted;
import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.Timeout;
import io.fluxccl.concurrent.SpinPolicy;
import java.util.concurrent.atomic.AtomicLong;
import org.agrona.concurrent.Agent;
import org.agrona.concurrent.AgentTerminationException;
import org.agrona.concurrent.IdleStrategy;

/**
 * Takes triggers off a {@link Fifo} and hands them to a {@link ProxyHandler}, in order, one thread
 * at a time. Either on a thread of its own, between {@link #start()} and {@link #stop()}, or
 * stepped by hand:
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
 * <p>A producer waits for the tail, so the tail is what tells it that a trigger was handled: it is
 * published at the end of a batch, or at once where the handler asks for it.
 */
public final class Proxy implements Agent, AutoCloseable {
  private final Fifo fifo;
  private final ProxyHandler handler;
  private final ProxyOptions options;
  private final ProxyErrorHandler errorHandler;
  private final ProxyDuty duty;
  private final int batch;
  private final ProxyThread runner;

  /** Set to end the loop: by who stops or closes, or by a handler's STOP. */
  private volatile boolean ending;

  /** Whether the agent is between onStart and onClose, on whatever thread. */
  private volatile boolean active;

  /** Whether a handler's STOP is why the loop ends; what is queued then stays queued. */
  private boolean stoppedByHandler;

  /** The position being handled, or -1; for who finds the thread stuck. */
  private final AtomicLong handling = new AtomicLong(-1);

  /**
   * A proxy that is not running.
   *
   * @param fifo what to take triggers from; closed with the proxy
   * @param handler what to do with them
   * @param options how to run
   */
  public Proxy(Fifo fifo, ProxyHandler handler, ProxyOptions options) {
    this.fifo = fifo;
    this.handler = handler;
    this.options = options;
    this.errorHandler = options.errorHandler();
    this.duty = options.duty();
    this.batch = options.batch();
    this.runner = new ProxyThread(this, options);
  }

  /** The ring it takes triggers from. */
  public Fifo fifo() {
    return fifo;
  }

  /**
   * Starts the thread and returns when its initialiser has run. Does nothing if it runs already.
   * May be called again after {@link #stop()}.
   *
   * @throws InvalidUsage if the proxy is closed, or being stepped by hand
   * @throws io.fluxccl.DeviceFailure if the initialiser failed
   * @throws Timeout if the initialiser did not return in time
   */
  public void start() {
    runner.start();
  }

  /** Whether the thread runs and takes triggers. */
  public boolean isRunning() {
    return runner.isAlive() && active && !ending;
  }

  /**
   * Ends the thread and returns when it has ended. Triggers that are committed by now are handled
   * first, and what the duty has begun is finished, for at most {@link ProxyOptions#stopTimeout()};
   * triggers that are left then stay in the ring, for the next start, and the error handler is told
   * the first of them. Waits for at most that time and 2 s. Does nothing if there is no thread.
   *
   * @throws InvalidUsage if called from the proxy thread, which would wait for itself: a handler
   *     returns {@link ProxyHandlerResult#STOP} instead
   * @throws Timeout if a handler did not return, although interrupted; may be called again
   */
  public void stop() {
    runner.stop();
  }

  /**
   * Stops and frees the ring; triggers that no handler has taken go to the error handler as {@link
   * Aborted}, the first of them. Idempotent.
   *
   * @throws InvalidUsage if called from the proxy thread, or while being stepped by hand
   * @throws Timeout if a handler did not return: the ring is kept then, and this may be called
   *     again
   */
  @Override
  public void close() {
    runner.close();
  }

  /** Called from the proxy thread, or from who steps by hand, before the first cycle. */
  @Override
  public void onStart() {
    if (active) {
      throw new InvalidUsage("proxy=" + roleName() + " has been started already; close that first");
    }
    runner.initialise();
    stoppedByHandler = false;
    active = true;
    // Kernels that wait must leave this thread a core, or yield.
    SpinPolicy.enter();
    runner.initialised();
  }

  /**
   * One duty cycle: a batch of triggers, then the duty. Called from the proxy thread, or from who
   * steps by hand. Allocates nothing, takes no lock, never waits.
   *
   * @return how many triggers were handled and how much the duty did
   * @throws AgentTerminationException if the loop is to end
   * @throws InvalidUsage if stepped by hand while the proxy runs on its own thread
   */
  @Override
  public int doWork() {
    if (ending) {
      throw new AgentTerminationException(true);
    }
    runner.checkThread();
    return drain(batch) + poll(duty);
  }

  /**
   * Handles what was committed by now, unless a handler asked to stop, and goes on with the duty
   * while something of it is pending; both within the {@link ProxyOptions#stopTimeout()}. Called
   * from the proxy thread, or from who steps by hand, after the last cycle.
   */
  @Override
  public void onClose() {
    if (!active) {
      return;
    }
    Deadline deadline = Deadline.after(options.stopTimeout());
    // What was committed when the stop came lies within one ring from here; producers that go on
    // pushing behind it cannot keep the loop alive.
    int left = fifo.size();
    while (left > 0 && !stoppedByHandler && !deadline.expired()) {
      int handled = drain(1);
      poll(duty);
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
    SpinPolicy.exit();
  }

  /** What was handled may not be done yet, and a producer may wait for that, too. */
  private void finishDuty(Deadline deadline) {
    try {
      if (duty.isPending()) {
        finishPending(deadline);
      }
    } catch (Throwable error) {
      reportLoop(error);
    }
  }

  private void finishPending(Deadline deadline) {
    IdleStrategy idle = options.idleStrategy().get();
    boolean late;
    do {
      late = deadline.expired();
      idle.idle(poll(duty));
    } while (!late && duty.isPending());
    if (duty.isPending()) {
      duty.giveUp();
    }
  }

  @Override
  public String roleName() {
    return options.name();
  }

  /** Handles up to a number of triggers and publishes the tail. */
  private int drain(int limit) {
    int handled = 0;
    boolean published = true;
    while (handled < limit && !stoppedByHandler && fifo.poll()) {
      ProxyHandlerResult result = handle(fifo.position(), fifo.first(), fifo.second());
      fifo.pop();
      handled++;
      if (result == ProxyHandlerResult.STOP) {
        // Before the tail tells anybody, who may then want to start this again.
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
    // No partner: this is for a person who reads of a thread that is stuck.
    handling.setOpaque(position);
    try {
      ProxyHandlerResult result = handler.handle(first, second, position);
      if (result != null) {
        return result;
      }
      reportTrigger(position, first, second, new InvalidUsage("proxy handler returned null"));
    } catch (Throwable error) {
      reportTrigger(position, first, second, error);
    } finally {
      handling.setOpaque(-1);
    }
    return ProxyHandlerResult.CONTINUE;
  }

  private int poll(ProxyDuty duty) {
    try {
      return duty.doWork();
    } catch (Throwable error) {
      reportLoop(error);
      return 0;
    }
  }

  private void reportTrigger(long position, long first, long second, Throwable error) {
    try {
      errorHandler.onTriggerError(position, first, second, error);
    } catch (Throwable inHandler) {
      // An error handler that fails must not end the loop, nor hide what it was told.
      inHandler.addSuppressed(error);
      ProxyErrorHandler.LOGGING.onTriggerError(position, first, second, inHandler);
    }
  }

  /** Tells of an error that belongs to no trigger. */
  void reportLoop(Throwable error) {
    try {
      errorHandler.onLoopError(error);
    } catch (Throwable inHandler) {
      inHandler.addSuppressed(error);
      ProxyErrorHandler.LOGGING.onLoopError(inHandler);
    }
  }

  private FluxCclException unhandled(Deadline deadline) {
    String message =
        "proxy="
            + roleName()
            + " stopped with triggers="
            + fifo.committed()
            + " still queued; start it again to handle them, stop the producers first, or give it"
            + " more than stopTimeout="
            + options.stopTimeout();
    return deadline.expired()
        ? new Timeout(FluxCclException.NO_RANK, message)
        : new Aborted(FluxCclException.NO_RANK, message);
  }

  private void reportQueued(FluxCclException error) {
    reportTrigger(fifo.position(), fifo.first(), fifo.second(), error);
  }

  /** Lets the next loop run; called while there is no thread. */
  void beginLoop() {
    ending = false;
  }

  /** Makes the loop end at its next cycle. */
  void endLoop() {
    ending = true;
  }

  /** Whether the loop was told to end. */
  boolean isEnding() {
    return ending;
  }

  /** Whether some thread is between onStart and onClose. */
  boolean isActive() {
    return active;
  }

  /** The position being handled, or -1. */
  long handling() {
    return handling.getOpaque();
  }

  /** Frees the ring; called once, while nobody consumes. */
  void free() {
    ending = true;
    if (fifo.poll()) {
      reportQueued(
          new Aborted(
              FluxCclException.NO_RANK,
              "proxy=" + roleName() + " closed with " + fifo.committed() + " triggers queued"));
    }
    fifo.close();
  }
}
