// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.InvalidUsage;
import java.util.List;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.atomic.AtomicIntegerFieldUpdater;
import java.util.concurrent.atomic.AtomicLongFieldUpdater;
import java.util.concurrent.atomic.AtomicReferenceFieldUpdater;
import org.reactivestreams.Subscriber;
import org.reactivestreams.Subscription;
import reactor.core.Exceptions;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Operators;
import reactor.core.scheduler.Scheduler;
import reactor.core.scheduler.Schedulers;

/**
 * A collective in chunks, as a cold Flux of those that are done. Demand decides which chunks are
 * enqueued: those requested and {@code prefetch} more, which are transferred while the subscriber
 * works. Not built of Reactor's operators, because flatMapSequential and concatMap subscribe to
 * inner publishers by their own prefetch and without demand, which peers would wait for.
 */
final class ChunkFlux {
  /** The most chunks enqueued and not done: a stream takes this many without blocking. */
  static final int MAX_IN_FLIGHT = 32;

  private ChunkFlux() {}

  /**
   * Returns the Flux.
   *
   * @param lane that executes the chunks
   * @param call the call and its chunks
   * @param prefetch how many chunks beyond those requested, 0 to {@link #MAX_IN_FLIGHT} - 1
   */
  static Flux<Chunk> of(Lane lane, ChunkedCall call, int prefetch) {
    if (prefetch < 0 || prefetch >= MAX_IN_FLIGHT) {
      throw new InvalidUsage("prefetch=" + prefetch + "; give 0 to " + (MAX_IN_FLIGHT - 1));
    }
    return Flux.from(subscriber -> subscribe(lane, call, prefetch, subscriber));
  }

  private static void subscribe(
      Lane lane, ChunkedCall call, int prefetch, Subscriber<? super Chunk> actual) {
    try {
      AlgorithmSelector.check(call.call(), lane.communicator.device(), lane.topology);
    } catch (InvalidUsage e) {
      Operators.error(actual, e);
      return;
    }
    if (call.chunks() == 0) {
      Operators.complete(actual);
      return;
    }
    Scheduler scheduler = lane.options.scheduler();
    Scheduler.Worker worker = scheduler == Schedulers.immediate() ? null : scheduler.createWorker();
    actual.onSubscribe(new Chunks(lane, call, prefetch, actual, worker));
  }

  /**
   * One subscription. A thread with an event (demand, a chunk that is done, a failure) stores it in
   * a field and increments {@link #work}. The thread that finds 0 does all the work, until no other
   * thread has incremented it. So signals are serial, and no lock is held while they are sent.
   */
  private static final class Chunks implements Subscription {
    private static final AtomicIntegerFieldUpdater<Chunks> WORK =
        AtomicIntegerFieldUpdater.newUpdater(Chunks.class, "work");
    private static final AtomicIntegerFieldUpdater<Chunks> DONE =
        AtomicIntegerFieldUpdater.newUpdater(Chunks.class, "done");
    private static final AtomicLongFieldUpdater<Chunks> REQUESTED =
        AtomicLongFieldUpdater.newUpdater(Chunks.class, "requested");
    private static final AtomicReferenceFieldUpdater<Chunks, Throwable> FAILURE =
        AtomicReferenceFieldUpdater.newUpdater(Chunks.class, Throwable.class, "failure");

    private final Lane lane;
    private final ChunkedCall call;
    private final int prefetch;
    private final Subscriber<? super Chunk> actual;
    private final Scheduler.Worker worker;

    private volatile int work;

    /** The total demand; {@code Long.MAX_VALUE} is unbounded. */
    private volatile long requested;

    /** Number of chunks that are done: a stream completes them in order. */
    private volatile int done;

    private volatile Throwable failure;
    private volatile boolean cancelled;

    /** The chunk enqueued last, from which the others are linked. */
    private volatile OneChunk newest;

    // Used only by the thread that does the work.
    private int enqueued;
    private int emitted;
    private boolean terminated;

    Chunks(
        Lane lane,
        ChunkedCall call,
        int prefetch,
        Subscriber<? super Chunk> actual,
        Scheduler.Worker worker) {
      this.lane = lane;
      this.call = call;
      this.prefetch = prefetch;
      this.actual = actual;
      this.worker = worker;
    }

    @Override
    public void request(long n) {
      if (n > 0) {
        Operators.addCap(REQUESTED, this, n);
        work();
      } else {
        giveUp(Exceptions.nullOrNegativeRequestException(n));
      }
    }

    @Override
    public void cancel() {
      cancelled = true;
      abandon();
      work();
    }

    private void giveUp(Throwable reason) {
      FAILURE.compareAndSet(this, null, reason);
      abandon();
      work();
    }

    /**
     * Leaves the unfinished chunks running, unless the options abort on cancel. Then cancels them,
     * the newest first, so that the end of a chunk starts no other one.
     */
    private void abandon() {
      if (!lane.options.abortOnCancel()) {
        return;
      }
      for (OneChunk run = newest; run != null; run = run.previous) {
        run.cancel();
      }
    }

    void done() {
      DONE.incrementAndGet(this);
      work();
    }

    /**
     * Withdraws the chunks that wait for their comparison: ranks may continue after a refused one.
     */
    void failed(Throwable reason) {
      FAILURE.compareAndSet(this, null, reason);
      for (OneChunk run = newest; run != null; run = run.previous) {
        run.withdraw();
      }
      work();
    }

    private void work() {
      if (WORK.getAndIncrement(this) != 0) {
        return;
      }
      if (worker == null) {
        workOff();
        return;
      }
      try {
        worker.schedule(this::workOff);
      } catch (RejectedExecutionException e) {
        // This thread must do the work: no other will, because the work is counted already.
        FAILURE.compareAndSet(this, null, e);
        abandon();
        workOff();
      }
    }

    private void workOff() {
      int seen = 1;
      while (seen != 0) {
        while (!terminated && step()) {}
        seen = WORK.addAndGet(this, -seen);
      }
    }

    /** Enqueues chunks, then emits one; false if there is none to emit. */
    private boolean step() {
      if (cancelled) {
        terminate(() -> {});
        return false;
      }
      int ready = done;
      while (mayEnqueue(ready)) {
        enqueue();
      }
      if (emitted < ready && emitted < requested) {
        actual.onNext(call.chunk(emitted++));
        return true;
      }
      Throwable reason = failure;
      if (emitted == call.chunks()) {
        terminate(actual::onComplete);
      } else if (reason != null) {
        terminate(() -> actual.onError(reason));
      }
      return false;
    }

    private void terminate(Runnable lastSignal) {
      terminated = true;
      lastSignal.run();
      if (worker != null) {
        worker.dispose();
      }
    }

    private boolean mayEnqueue(int ready) {
      long wanted = requested;
      return wanted > 0
          && enqueued < call.chunks()
          && enqueued - prefetch < wanted
          && enqueued - ready < MAX_IN_FLIGHT
          && failure == null
          && !cancelled;
    }

    private void enqueue() {
      OneChunk run = new OneChunk(this, enqueued, newest);
      newest = run;
      enqueued++;
      if (cancelled || failure != null) {
        run.cancel(); // the thread that set it may have seen the newest before this one
      }
      lane.submit(run);
    }
  }

  /** A chunk in flight. */
  private static final class OneChunk extends Run {
    private final Chunks chunks;
    private final int index;

    /** The chunk before; null after the chunks before it are done, or have failed. */
    private volatile OneChunk previous;

    OneChunk(Chunks chunks, int index, OneChunk previous) {
      super(chunks.lane, List.of(new Step.Collect(chunks.call.call(index))));
      this.chunks = chunks;
      this.index = index;
      this.previous = previous;
    }

    @Override
    void completed() {
      previous = null;
      chunks.done();
    }

    @Override
    void failed(Throwable reason) {
      previous = null;
      chunks.failed(reason);
    }

    @Override
    String description() {
      return "chunk " + index + " of " + chunks.call;
    }
  }

  /**
   * A call that is executed in chunks. Each chunk is a call for a range of the elements; of every
   * rank's share, if a buffer has one for each.
   *
   * @param call the whole call
   * @param chunkElements elements of each chunk but the last
   * @param chunks the number of chunks; 0 for a count of 0
   */
  record ChunkedCall(UniformCall call, long chunkElements, int chunks) {
    /** Splits a call, whose number of elements all ranks must know. */
    static ChunkedCall of(CollectiveCall call, long chunkElements) {
      if (!(call instanceof UniformCall uniform)) {
        throw new InvalidUsage(
            call + " can't be chunked: ranks don't know how many elements the others have");
      }
      if (chunkElements < 1 || (call.count() - 1) / chunkElements >= Integer.MAX_VALUE) {
        throw InvalidUsage.of(
            "%s in chunks of %d; give 1 or more, and not more than %d chunks",
            call, chunkElements, Integer.MAX_VALUE);
      }
      int chunks = call.count() == 0 ? 0 : (int) ((call.count() - 1) / chunkElements) + 1;
      return new ChunkedCall(uniform, chunkElements, chunks);
    }

    /** Returns the range of a chunk. */
    Chunk chunk(int index) {
      long offset = index * chunkElements;
      return new Chunk(index, offset, Math.min(chunkElements, call.count() - offset));
    }

    /** Returns a chunk as a call; the whole call was checked. */
    CollectiveCall call(int index) {
      Chunk chunk = chunk(index);
      return call.part(chunk.offset(), chunk.count());
    }

    @Override
    public String toString() {
      return call + " in " + chunks + " chunks";
    }
  }
}
