package io.fluxccl.proxy;

import io.fluxccl.Deadline;
import io.fluxccl.DeviceFailure;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.Timeout;
import java.time.Duration;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.agrona.concurrent.Agent;
import org.agrona.concurrent.AgentRunner;
import org.agrona.concurrent.IdleStrategy;

/**
 * The thread of a {@link Proxy}: starts, stops, and frees. Every wait is bounded. A thread that
 * does not end is left behind as a daemon with its memory intact, and reported.
 */
final class ProxyThread {
  /** How long a handler that is running when the stop timeout is over may take to return. */
  private static final Duration GRACE = Duration.ofSeconds(1);

  private final Proxy proxy;
  private final ProxyOptions options;

  // Guarded by this, like every transition. The thread itself never takes the lock.
  private boolean closed;

  // Set before the thread starts.
  private CountDownLatch initialised;
  private volatile Thread thread;
  private volatile FluxCclException initFailure;

  ProxyThread(Proxy proxy, ProxyOptions options) {
    this.proxy = proxy;
    this.options = options;
  }

  boolean isAlive() {
    Thread current = thread;
    return current != null && current.isAlive();
  }

  void start() {
    refuseOwnThread("start");
    synchronized (this) {
      if (closed) {
        throw new InvalidUsage(describe() + " is closed; make a new one");
      }
      if (isAlive()) {
        if (!proxy.isEnding()) {
          return;
        }
        // A handler has just returned STOP.
        join(Deadline.after(options.stopTimeout()));
      }
      if (proxy.isActive()) {
        throw new InvalidUsage(
            describe() + " is being stepped by hand; close its AgentInvoker before the start");
      }
      launch();
    }
  }

  private void launch() {
    initFailure = null;
    initialised = new CountDownLatch(1);
    proxy.beginLoop();
    Loop loop = new Loop(proxy, options.idleStrategy().get());
    AgentRunner runner = new AgentRunner(loop, this::onRunnerError, null, loop);
    AgentRunner.startOnThread(runner, this::newThread);
    Deadline deadline = Deadline.after(Deadline.DEFAULT_TIMEOUT);
    if (!awaitInitialised(deadline)) {
      proxy.endLoop();
      thread.interrupt();
      throw new Timeout(
          FluxCclException.NO_RANK,
          describe() + " threadInit did not return within " + deadline.timeout());
    }
    if (initFailure != null) {
      join(Deadline.after(GRACE));
      throw initFailure;
    }
  }

  private Thread newThread(Runnable work) {
    Thread created = new Thread(work, options.name());
    // A proxy that nobody stopped must not keep the process alive.
    created.setDaemon(true);
    // Before it starts, so that onStart knows whose thread it is on.
    thread = created;
    return created;
  }

  /** Runs the thread's initialiser. Called from the proxy thread, or from who steps by hand. */
  void initialise() {
    boolean own = Thread.currentThread() == thread;
    if (!own) {
      adoptSteps();
    }
    try {
      options.threadInit().run();
    } catch (Throwable error) {
      FluxCclException failure =
          error instanceof FluxCclException
              ? (FluxCclException) error
              : new DeviceFailure(
                  0, "THREAD_INIT", describe() + " threadInit failed with " + error, error);
      if (own) {
        initFailure = failure;
        proxy.endLoop();
        initialised.countDown();
      }
      throw failure;
    }
  }

  /** Lets {@link #start()} return. Called from the proxy thread, or from who steps by hand. */
  void initialised() {
    if (Thread.currentThread() == thread) {
      initialised.countDown();
    }
  }

  private synchronized void adoptSteps() {
    if (closed) {
      throw new InvalidUsage(describe() + " is closed; make a new one");
    }
    if (isAlive()) {
      throw new InvalidUsage(describe() + " runs on its own thread; stop it first");
    }
    thread = null;
    proxy.beginLoop();
  }

  private void onRunnerError(Throwable error) {
    // start() throws this one.
    if (error != initFailure) {
      proxy.reportLoop(error);
    }
  }

  /**
   * Refuses a second consumer. And an interrupt, which a handler may have left behind or anybody
   * sent, must neither end the loop in silence nor keep it from sleeping.
   */
  void checkThread() {
    Thread owner = thread;
    if (owner == null) {
      return;
    }
    if (Thread.currentThread() != owner) {
      throw new InvalidUsage(describe() + " runs on its own thread; stop it to step it by hand");
    }
    if (Thread.interrupted()) {
      proxy.reportLoop(
          new InvalidUsage(
              describe() + " was interrupted and goes on; Proxy.stop() is what ends it"));
    }
  }

  void stop() {
    refuseOwnThread("stop");
    synchronized (this) {
      if (isAlive()) {
        proxy.endLoop();
        join(Deadline.after(options.stopTimeout().plus(GRACE)));
      }
      thread = null;
    }
  }

  void close() {
    refuseOwnThread("close");
    synchronized (this) {
      if (closed) {
        return;
      }
      stop();
      if (proxy.isActive()) {
        throw new InvalidUsage(
            describe() + " is being stepped by hand; close its AgentInvoker first");
      }
      closed = true;
      proxy.free();
    }
  }

  private void refuseOwnThread(String operation) {
    if (Thread.currentThread() == thread) {
      throw new InvalidUsage(
          describe() + " " + operation + " on the proxy thread; let the handler return STOP");
    }
  }

  /** Waits for the thread's end, interrupts it when it is late, and gives up in the end. */
  private void join(Deadline deadline) {
    LockSupport.unpark(thread);
    if (ended(deadline)) {
      return;
    }
    thread.interrupt();
    if (!ended(Deadline.after(GRACE))) {
      throw new Timeout(
          FluxCclException.NO_RANK,
          describe()
              + " did not end within "
              + deadline.timeout().plus(GRACE)
              + ": its handler has not returned from the trigger at position "
              + proxy.handling()
              + "; handlers must not block");
    }
  }

  private boolean ended(Deadline deadline) {
    boolean interrupted = false;
    while (thread.isAlive() && !deadline.expired()) {
      try {
        thread.join(deadline.remainingMillis());
      } catch (InterruptedException e) {
        // The wait is bounded, and half a stop would help nobody.
        interrupted = true;
      }
    }
    if (interrupted) {
      Thread.currentThread().interrupt();
    }
    return !thread.isAlive();
  }

  private boolean awaitInitialised(Deadline deadline) {
    boolean interrupted = false;
    boolean done = false;
    while (!done && !deadline.expired()) {
      try {
        done = initialised.await(deadline.remainingNanos(), TimeUnit.NANOSECONDS);
      } catch (InterruptedException e) {
        interrupted = true;
      }
    }
    if (interrupted) {
      Thread.currentThread().interrupt();
    }
    return done;
  }

  private String describe() {
    return "proxy=" + options.name();
  }

  /**
   * The proxy and how it idles, as the runner sees them: always at work. Of an agent without work
   * the runner takes any interrupt for the end; here {@link #checkThread()} looks after those.
   */
  private static final class Loop implements Agent, IdleStrategy {
    private final Proxy proxy;
    private final IdleStrategy idling;
    private int workCount;

    Loop(Proxy proxy, IdleStrategy idling) {
      this.proxy = proxy;
      this.idling = idling;
    }

    @Override
    public void onStart() {
      proxy.onStart();
    }

    @Override
    public int doWork() {
      workCount = proxy.doWork();
      return 1;
    }

    @Override
    public void onClose() {
      proxy.onClose();
    }

    @Override
    public String roleName() {
      return proxy.roleName();
    }

    @Override
    public void idle(int always) {
      idling.idle(workCount);
    }

    @Override
    public void idle() {
      idling.idle();
    }

    @Override
    public void reset() {
      idling.reset();
    }

    @Override
    public String alias() {
      return idling.alias();
    }
  }
}
