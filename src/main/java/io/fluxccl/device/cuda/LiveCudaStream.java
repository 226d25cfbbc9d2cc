// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import io.fluxccl.DeviceFailure;
import io.fluxccl.completion.CompletionAgent;
import io.fluxccl.completion.CompletionQueue;
import io.fluxccl.concurrent.Lifecycle;
import io.fluxccl.device.DeviceGraph;
import io.fluxccl.device.StreamClock;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.function.BiFunction;
import java.util.function.Function;
import jcuda.driver.CUevent;
import jcuda.driver.CUevent_flags;
import jcuda.driver.CUresult;
import jcuda.driver.CUstream;
import jcuda.driver.JCudaDriver;

/** A stream that runs its work, by a stream of the driver. */
@SuppressWarnings("try") // variables that only keep a lock held
class LiveCudaStream extends CudaStream {
  /**
   * Number of outstanding completions from which on a launch may block because the stream is full.
   */
  private static final int MANY = 64;

  private final CudaPinnedBuffer line;
  final CompletionQueue queue;
  final EventRing milestones;
  private final EnqueueLock enqueueLock;

  /**
   * Whether work may have been enqueued after the last stored number. Set after enqueuing and
   * cleared before storing a number, so that no work is missed.
   */
  volatile boolean dirty;

  /** Whether the user has the handle and may enqueue work that this class does not know. */
  private volatile boolean shared;

  // All guarded by lock.
  private final CudaPointer linePointer;
  private boolean registered;
  private boolean destroyed;

  /**
   * Takes over one use of the context, a line and, unless {@link #destroyHandle} is overridden, a
   * stream.
   *
   * @param preferred whether the stream has the highest priority
   */
  LiveCudaStream(
      CudaDevice device,
      String name,
      CUstream stream,
      boolean preferred,
      CudaPinnedBuffer line,
      CompletionAgent agent) {
    super(device, name, stream, null);
    this.enqueueLock = preferred ? null : context.enqueueLock;
    this.line = line;
    this.linePointer = new CudaPointer(line.deviceAddress());
    this.milestones = new EventRing();
    this.queue = agent.createQueue(name, line.buffer(), milestones::reached, this::failure);
  }

  static LiveCudaStream create(
      CudaDevice device, String name, boolean preferred, CompletionAgent agent) {
    return create(
        device,
        preferred,
        (line, handle) -> new LiveCudaStream(device, name, handle, preferred, line, agent));
  }

  /** Returns an object with a new stream of the driver, which is destroyed if that fails. */
  static LiveCudaStream create(
      CudaDevice device,
      boolean preferred,
      BiFunction<CudaPinnedBuffer, CUstream, LiveCudaStream> made) {
    return open(
        device,
        line -> {
          CUstream handle = device.context().createStream(preferred);
          try {
            return made.apply(line, handle);
          } catch (RuntimeException | Error e) {
            JCudaDriver.cuStreamDestroy(handle);
            throw e;
          }
        });
  }

  static LiveCudaStream open(CudaDevice device, Function<CudaPinnedBuffer, LiveCudaStream> made) {
    PrimaryContext context = device.context();
    CudaPinnedBuffer line = device.pinnedPiece(CompletionQueue.LINE_LENGTH);
    context.retain();
    try {
      LiveCudaStream stream = made.apply(line);
      LaunchGate.PROCESS.streams.add(stream);
      return stream;
    } catch (RuntimeException | Error e) {
      line.closeNow();
      context.release();
      throw e;
    }
  }

  @Override
  public CUstream handle() {
    shared = knowsAllWork();
    return stream;
  }

  @Override
  void requireSameCapture(CudaStream other) {
    if (other instanceof WrappedStream) {
      other.requireSameCapture(this);
    }
  }

  @Override
  void ended() {
    if (!dirty) {
      dirty = true;
    }
  }

  /**
   * {@inheritDoc}
   *
   * <p>Not on preferred streams: their work waits for no kernel and delays other streams only
   * briefly. Not on streams with much enqueued work: these have a hardware queue already, and if it
   * is full, the driver blocks the thread.
   */
  @Override
  EnqueueLock tryLock() {
    boolean hasMuchToDo = queue.issued() - queue.reached() >= MANY && mayBeBusy();
    return enqueueLock != null && !hasMuchToDo ? enqueueLock.tryLock() : null;
  }

  /** Returns whether the stream may have work. */
  boolean mayBeBusy() {
    return query() == CUresult.CUDA_ERROR_NOT_READY;
  }

  /** Returns the driver's result for the stream: done, not ready, or a failure. */
  int query() {
    return CudaError.query(stream);
  }

  @Override
  protected CudaStream newBranch(String branchName) {
    return device.newBranch(branchName, null);
  }

  @Override
  protected CudaStream enqueueGraph(DeviceGraph graph) {
    try (LaunchGate entered = LaunchGate.PROCESS.enter()) {
      synchronized (lock) {
        begin();
        int result;
        try (EnqueueLock held = tryLock()) {
          result = ((CudaGraph) graph).launchOn(stream);
        }
        ended();
        if (result != CUresult.CUDA_SUCCESS) {
          throw failed(result, "cuGraphLaunch(" + graph + ")");
        }
      }
      return this;
    }
  }

  /** Returns whether all work enqueued so far is done or has failed. */
  boolean isIdle() {
    synchronized (lock) {
      if (destroyed) {
        return true;
      }
      if (!dirty && !shared && queue.reached() >= queue.issued()) {
        return true;
      }
      // After a failed kernel the stream never stores its last number, so query the driver.
      return context.tryMakeCurrent() != CUresult.CUDA_SUCCESS
          || query() != CUresult.CUDA_ERROR_NOT_READY;
    }
  }

  @Override
  public void requireHealthy() {
    synchronized (lock) {
      if (!destroyed) {
        DeviceFailure failure = failure();
        if (failure != null) {
          throw failure;
        }
      }
    }
  }

  /** Called by the completion thread. The stream is not destroyed while a caller waits for it. */
  private DeviceFailure failure() {
    int result = context.tryMakeCurrent();
    if (result == CUresult.CUDA_SUCCESS) {
      result = query();
    }
    return result == CUresult.CUDA_SUCCESS || result == CUresult.CUDA_ERROR_NOT_READY
        ? null
        : failed(result, "work");
  }

  @Override
  public Optional<StreamClock> clock(int points) {
    return Optional.of(new Clock(points));
  }

  @Override
  public CompletableFuture<Void> completion() {
    synchronized (lock) {
      if (isClosed()) {
        return CompletableFuture.failedFuture(closedFailure());
      }
      try {
        long sequence = mark();
        registered = true;
        return queue.register(sequence);
      } catch (DeviceFailure e) {
        return CompletableFuture.failedFuture(e);
      }
    }
  }

  /**
   * Makes the stream report when everything enqueued so far is done: by an event while an earlier
   * completion is outstanding, otherwise by storing the next number.
   */
  long mark() {
    context.makeCurrent();
    // Memory may change once the completion is known: the next kernel must not overlap this work.
    dirty = lastMayOverlap = false;
    boolean hasMore = queue.reached() < queue.issued() && milestones.hasRoom();
    long sequence = queue.next();
    int result;
    try (EnqueueLock held = tryLock()) {
      result =
          hasMore
              ? milestones.record(stream, sequence)
              : JCudaDriver.cuStreamWriteValue64(stream, linePointer, sequence, WRITE_DEFAULT);
    }
    if (result != CUresult.CUDA_SUCCESS) {
      dirty = true;
      throw failed(result, "noting completion " + sequence);
    }
    return sequence;
  }

  /**
   * Runs an action after the work enqueued so far and the futures that wait for it, also if the
   * stream is closed.
   *
   * @return false if there is neither and the action is not run
   */
  boolean runAfterEnqueuedWork(Runnable action) {
    synchronized (lock) {
      if (destroyed) {
        return false;
      }
      try {
        boolean unmarked = !isClosed() && (dirty || shared);
        long sequence = unmarked ? mark() : queue.issued();
        // The action may close the stream, which fails the futures that still wait.
        if (queue.reached() >= sequence && !queue.isPending()) {
          return false;
        }
        runAfter(sequence, action);
        return true;
      } catch (DeviceFailure e) {
        return false; // nothing runs on this GPU any more
      }
    }
  }

  /** Runs an action after a completion. The caller holds the lock. */
  final void runAfter(long sequence, Runnable action) {
    registered = true;
    queue.afterwards(sequence, action);
  }

  /** Marks the last work before the stream is closed. The caller holds the lock. */
  void markLast() {
    if (dirty || shared) {
      mark();
    }
  }

  /** Destroys the driver's stream; the context is current. */
  void destroyHandle() {
    JCudaDriver.cuStreamDestroy(stream);
  }

  @Override
  public void close() {
    synchronized (lock) {
      if (!lifecycle.beginClose()) {
        return;
      }
      boolean usable = true;
      try {
        markLast();
      } catch (DeviceFailure e) {
        usable = false;
      }
      long last = queue.issued();
      if (usable && (registered || queue.reached() < last)) {
        queue.afterwards(last, this::destroy);
      } else if (registered) {
        queue.afterwards(0, this::destroy); // the agent may be polling the line
      } else {
        destroy();
      }
    }
    queue.close(closedFailure());
    closeBranches();
  }

  /** Destroys the stream. The driver keeps what it needs until the work is done. */
  private void destroy() {
    synchronized (lock) {
      destroyed = true;
      queue.remove();
      device.remove(this);
      LaunchGate.PROCESS.streams.remove(this);
      // Fails after a kernel has failed; the stream is then lost with the context.
      if (context.tryMakeCurrent() == CUresult.CUDA_SUCCESS) {
        destroyHandle();
        event.destroy();
        milestones.destroy();
      }
      line.closeNow();
      context.release();
    }
  }

  /**
   * Reports completions by driver events, for a stream that still has work. A stored number needs a
   * barrier, which delays the stream's next work by some 3 us. An event does not delay the stream,
   * but each poll of it is a driver call.
   *
   * <p>One thread at a time records, another one polls. Neither takes a lock of this library, and
   * neither allocates after all events have been created.
   */
  final class EventRing {
    private static final int CAPACITY = 256;

    private final CUevent[] events = new CUevent[CAPACITY];
    private final long[] sequences = new long[CAPACITY];

    /**
     * Number of recorded completions. The recording thread writes it after the event and its
     * number.
     */
    private volatile long recorded;

    /** Number of completions found reached. Written by the polling thread. */
    private volatile long passed;

    /** The last number found reached. Used by the polling thread. */
    private long reached;

    /** Returns whether another one can be recorded. */
    boolean hasRoom() {
      return recorded - passed < CAPACITY;
    }

    /**
     * Records that a number is reached when the work enqueued so far is done. Requires a free slot
     * and a current context.
     *
     * @return the driver's result
     */
    int record(CUstream stream, long sequence) {
      int slot = (int) (recorded % CAPACITY);
      if (events[slot] == null) {
        CUevent made = new CUevent();
        int result = JCudaDriver.cuEventCreate(made, CUevent_flags.CU_EVENT_DISABLE_TIMING);
        if (result != CUresult.CUDA_SUCCESS) {
          return result;
        }
        events[slot] = made;
      }
      sequences[slot] = sequence;
      int result = JCudaDriver.cuEventRecord(events[slot], stream);
      if (result == CUresult.CUDA_SUCCESS) {
        recorded++;
      }
      return result;
    }

    /** Returns whether the last recorded completion has that number and is reached. Any thread. */
    boolean hasReachedLast(long sequence) {
      int last = (int) ((recorded + CAPACITY - 1) % CAPACITY);
      return recorded > 0
          && sequences[last] == sequence
          && CudaError.query(events[last]) == CUresult.CUDA_SUCCESS;
    }

    /** Returns the highest number found reached. Called by the polling thread. */
    long reached() {
      long next = passed;
      long end = recorded;
      if (next == end || context.tryMakeCurrent() != CUresult.CUDA_SUCCESS) {
        return reached;
      }
      while (next < end) {
        int slot = (int) (next % CAPACITY);
        if (CudaError.query(events[slot]) != CUresult.CUDA_SUCCESS) {
          break; // not done, or failed, which the check of the stream's health detects
        }
        reached = sequences[slot];
        next++;
      }
      passed = next;
      return reached;
    }

    /** Destroys the events, once the stream's work is done. */
    void destroy() {
      for (CUevent event : events) {
        if (event != null) {
          JCudaDriver.cuEventDestroy(event);
        }
      }
    }
  }

  /**
   * A GPU's clock, based on driver events, which measure only the time between two events. The host
   * time of the base event is therefore estimated as early as possible. If the clocks drift apart,
   * each time is kept between the enqueue of its event and the moment at which the host saw the
   * completion.
   */
  private final class Clock implements StreamClock {
    /**
     * The driver returns milliseconds as a float, which has a resolution of 60 ns after one second.
     */
    private static final double LONGEST_NS = 1e9;

    private static final double NANOS_PER_MILLI = 1e6;

    // All guarded by this.
    private final CUevent[] events;
    private final float[] millis = new float[1];
    private final Lifecycle ofClock = new Lifecycle("clock of stream " + name);

    /** The host time of each event's enqueue. */
    private final long[] enqueuedNs;

    /** The base event, and its host time. */
    private CUevent base;

    private double baseNs;

    Clock(int points) {
      this.events = new CUevent[points];
      this.enqueuedNs = new long[points];
      context.retain();
    }

    @Override
    public void mark(int point) {
      CUevent event = eventFor(point);
      // Without this object's lock, which the completion thread also takes: a full stream blocks
      // this
      // call.
      if (event != null) {
        recordTime(event);
      }
    }

    private synchronized CUevent eventFor(int point) {
      if (ofClock.isClosed()) {
        return null;
      }
      if (events[point] == null) {
        context.makeCurrent();
        events[point] = context.createEvent(CUevent_flags.CU_EVENT_DEFAULT);
      }
      enqueuedNs[point] = System.nanoTime();
      return events[point];
    }

    @Override
    public synchronized boolean read(int from, int to, long seenNs, long[] times) {
      if (ofClock.isClosed() || context.tryMakeCurrent() != CUresult.CUDA_SUCCESS) {
        return false;
      }
      boolean first = base == null;
      double since = first ? 0 : elapsedNs(base, events[from]);
      double took = elapsedNs(events[from], events[to]);
      if (Double.isNaN(since + took)) {
        return false;
      }
      double begun = first ? enqueuedNs[from] : Math.max(baseNs + since, enqueuedNs[from]);
      begun = Math.min(begun, seenNs - took);
      baseNs = begun - since;
      if (first || since > LONGEST_NS) {
        CUevent old = base;
        base = events[from];
        events[from] = old;
        baseNs = begun;
      }
      times[0] = Math.round(begun);
      times[1] = Math.round(begun + took);
      return true;
    }

    private double elapsedNs(CUevent from, CUevent to) {
      int result = JCudaDriver.cuEventElapsedTime(millis, from, to);
      return result == CUresult.CUDA_SUCCESS ? millis[0] * NANOS_PER_MILLI : Double.NaN;
    }

    @Override
    public synchronized void close() {
      if (!ofClock.beginClose()) {
        return;
      }
      // Fails after a kernel has failed; the events are then lost with the context.
      if (context.tryMakeCurrent() == CUresult.CUDA_SUCCESS) {
        for (CUevent each : events) {
          destroy(each);
        }
        destroy(base);
      }
      context.release();
    }

    private static void destroy(CUevent event) {
      if (event != null) {
        JCudaDriver.cuEventDestroy(event);
      }
    }
  }
}
