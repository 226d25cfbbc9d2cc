// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.DataType;
import io.fluxccl.Deadline;
import io.fluxccl.RemoteFailure;
import io.fluxccl.Text;
import io.fluxccl.TransportFailure;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.concurrent.Closing;
import io.fluxccl.concurrent.Timers;
import io.fluxccl.device.StreamClock;
import io.fluxccl.trace.FlightRecorder;
import io.fluxccl.trace.Outcome;
import io.fluxccl.trace.Snapshot;
import io.fluxccl.wire.WireReader;
import io.fluxccl.wire.WireWriter;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import java.util.stream.IntStream;
import reactor.core.Disposable;
import reactor.core.Disposables;
import reactor.core.scheduler.Scheduler;

/**
 * Watches the runs of a lane that are in flight, and the peers that leave it.
 *
 * <p>The runs are in the order in which they were enqueued. Most have the same time limit, so one
 * timer serves all of them: it is set for the earliest deadline, and again only for a run with an
 * earlier one. A run that is enqueued while Reactor's virtual time is installed has a timer of its
 * own, which follows the virtual time. The start and the end of each run go to the flight recorder,
 * without an allocation or a lock, unless the recorder wants the device's times too.
 *
 * <p>Ranks send each other notices when they close a lane, with the number of collectives of all
 * ranks that they took part in. So a rank that waits for another collective detects at once that it
 * can't complete, on every transport. Notices also carry the messages of {@link CallComparison}. A
 * lane has a number on each rank, which ranks exchange at its opening and repeat in a notice. So a
 * notice of an earlier lane of the same tag is not taken for one of this lane.
 *
 * <pre>notice = int64 lane, then uint8 0, int64 collectives; or uint8 1, calls</pre>
 */
final class LaneWatch implements AutoCloseable {
  /** The limit of a run that may take for ever. */
  static final long NO_LIMIT_NS = Deadline.NO_LIMIT.toNanos();

  /** The most runs in flight whose times the device takes; the newest of more are not timed. */
  static final int MOST_TIMED = 512;

  private static final long NONE = Long.MIN_VALUE;
  private static final Duration SOON = Duration.ofSeconds(5);
  private static final int LEAVES = 0;
  private static final int CALLS = 1;
  private static final Collective[] COLLECTIVES = Collective.values();

  /** The peer that left after the fewest collectives. */
  private record Left(int peer, long rounds) {}

  private final Lane lane;
  private final Communicator communicator;
  private final int tag;
  final ConcurrentLinkedQueue<Run> runs = new ConcurrentLinkedQueue<>();
  private final Disposable.Swap task = Disposables.swap();

  /** The last of the timers that had real time. */
  private volatile Scheduler timer;

  /** The time of the timer's next check, or {@link #NONE}. Written under this object's lock. */
  private volatile long nextLook = NONE;

  private final FlightRecorder recorder;
  private final Supplier<Snapshot> progress;

  /** Null unless the recorder wants the device's times, and the stream has a clock. */
  private final Times times;

  private final int[] kinds = new int[COLLECTIVES.length];
  private final int[] types = new int[DataType.values().length];
  private final int pipeline;
  private final int captured;

  /** The lane's number on each rank. */
  private final long[] lanes;

  // Its lock guards the next two as well, and writing to left.
  private final CompletableFuture<?>[] listening;
  private boolean stopped;
  private Runnable endOfListening = () -> {};
  private volatile Left left = new Left(-1, Long.MAX_VALUE);

  /**
   * Creates the watch of a lane, and adds the lane to the flight recorder.
   *
   * @param lane opened by all ranks
   */
  LaneWatch(Lane lane) {
    this.lane = lane;
    this.communicator = lane.communicator;
    this.tag = lane.options.tag();
    this.lanes = lane.peers.lanes();
    this.listening = new CompletableFuture<?>[lanes.length];
    this.recorder = communicator.recorder();
    for (Collective each : COLLECTIVES) {
      kinds[each.ordinal()] = recorder.number(each.label());
    }
    for (DataType each : DataType.values()) {
      types[each.ordinal()] = recorder.number(each.label());
    }
    this.pipeline = recorder.number("pipeline");
    this.captured = recorder.number("captured pipeline");
    this.progress =
        () ->
            lane.namedWaits.apply(
                Snapshot.EMPTY
                    .with("tag", tag)
                    .with("enqueued", lane.rounds)
                    .with("done", lane.roundsDone.get())
                    .with("in_flight", runs.size()));
    this.times =
        recorder.wantsDeviceTimes()
            ? lane.stream.clock(2 * MOST_TIMED).map(Times::new).orElse(null)
            : null;
    lane.algorithms.number(recorder);
    recorder.add(progress);
  }

  /** Adds a run that was just enqueued. Called by one thread at a time. */
  void add(Run run) {
    long limitNs = run.limitNs();
    Scheduler current = Timers.current();
    boolean real = current == timer || isReal(current);
    boolean limited = limitNs < NO_LIMIT_NS;
    run.deadlineNs = real && limited ? System.nanoTime() + limitNs : NONE;
    runs.add(run);
    if (!real && limited) {
      schedule(current, () -> endIfInFlight(run), limitNs);
    } else if (limited && isBeforeNextLook(run.deadlineNs)) {
      // After the run is added: look() uses both in the opposite order.
      arm(run.deadlineNs);
    }
  }

  /** Uses a timer from now on, unless its time is virtual. */
  private synchronized boolean isReal(Scheduler current) {
    if (!Deadline.isReal(current)) {
      return false;
    }
    timer = current;
    nextLook = NONE; // the previous one was shut down, or a virtual one was removed
    return true;
  }

  private void endIfInFlight(Run run) {
    if (!run.isOver()) {
      LateRuns.end(lane, run);
    }
  }

  /** Returns the timer's task, or null if all schedulers were shut down. */
  private static Disposable schedule(Scheduler timer, Runnable what, long delayNs) {
    try {
      return timer.schedule(what, Math.max(0, delayNs), TimeUnit.NANOSECONDS);
    } catch (RejectedExecutionException e) {
      return null; // the next run may get new schedulers
    }
  }

  private boolean isBeforeNextLook(long deadlineNs) {
    long next = nextLook;
    return next == NONE || deadlineNs - next < 0;
  }

  private synchronized void arm(long deadlineNs) {
    if (!isBeforeNextLook(deadlineNs)) {
      return;
    }
    nextLook = deadlineNs;
    Disposable next = schedule(timer, this::look, deadlineNs - System.nanoTime());
    if (next == null) {
      nextLook = NONE;
    } else {
      task.update(next);
    }
  }

  private void look() {
    synchronized (this) {
      nextLook = NONE;
    }
    trim();
    Run first = earliest();
    if (first == null) {
      return;
    }
    if (first.deadlineNs - System.nanoTime() > 0) {
      arm(first.deadlineNs);
    } else {
      LateRuns.end(lane, first);
    }
  }

  /** Returns the run with the earliest deadline of those that are not over, or null. */
  private Run earliest() {
    Run first = null;
    for (Run run : runs) {
      if (!run.isOver()
          && run.deadlineNs != NONE
          && (first == null || run.deadlineNs - first.deadlineNs < 0)) {
        first = run;
      }
    }
    return first;
  }

  /** Removes runs that are over. Any thread. */
  private void trim() {
    Run oldest = runs.peek();
    while (oldest != null && oldest.isOver()) {
      runs.remove(oldest); // the first, unless another thread has removed it already
      oldest = runs.peek();
    }
  }

  /** Returns the newest run that is not over, or null. */
  Run newest() {
    Run newest = null;
    for (Run run : runs) {
      newest = run.isOver() ? newest : run;
    }
    return newest;
  }

  /** Fails all runs. */
  void fail(Throwable reason) {
    runs.forEach(run -> run.fail(reason));
  }

  /** Called before the steps of a run are enqueued; under the lane's lock. */
  void begin(Run run) {
    // A call that the stream's owner captures runs later, as often as the owner likes.
    if (times != null && !lane.stream.isCapturing()) {
      times.begin(run);
    }
  }

  /** Records a run whose steps were just enqueued; under the lane's lock. */
  void enqueued(Run run, List<Step> steps) {
    if (!recorder.isOn()) {
      return;
    }
    long before = lane.rounds;
    int nRanks = lanes.length;
    int kind = pipeline;
    int type = 0;
    long bytes = 0;
    for (int i = 0; i < steps.size(); i++) {
      bytes += steps.get(i).bytes(nRanks);
    }
    CollectiveCall one = steps.size() == 1 ? steps.get(0).recorded() : null;
    if (one != null) {
      kind = kinds[one.collective().ordinal()];
      type = one.type() == null ? 0 : types[one.type().ordinal()];
    } else if (!steps.isEmpty() && steps.get(0) instanceof CapturedPipeline.Replay) {
      kind = captured;
    }
    long first = run.lastRound > before ? before + 1 : 0;
    long last = first == 0 ? 0 : run.lastRound;
    int algorithm = kind == captured ? 0 : lane.algorithms.takeLastUsed();
    if (times != null) {
      times.enqueued(run);
    }
    run.recorded = recorder.enqueued(tag, kind, type, algorithm, bytes, first, last);
  }

  /** Records the end of a run that was in flight. Any thread. */
  void ended(Run run, Outcome outcome) {
    if (times != null) {
      times.ended(run, outcome);
    }
    recorder.ended(run.recorded, outcome, run.begunNs, run.endedNs);
    trim();
  }

  /** Cancels the timer, after the last run, and removes the lane from the recorder. */
  @Override
  public void close() {
    task.dispose();
    recorder.remove(progress);
    Closing.all(times);
  }

  private int rank() {
    return communicator.bootstrap().rank();
  }

  private IntStream peers() {
    return IntStream.range(0, lanes.length).filter(peer -> peer != rank());
  }

  /**
   * Listens to the peers until {@link #stopListening}, or until the communicator ends. When this
   * rank's group begins to leave, it sends a leave notice.
   */
  void listen() {
    peers().forEach(this::listen);
    endOfListening = communicator.whenLeaving(peer -> send(peer, leaving(lane.roundsToLeave())));
  }

  private void listen(int peer) {
    CompletableFuture<byte[]> notice;
    synchronized (listening) {
      if (stopped) {
        return;
      }
      notice = communicator.recvNotice(peer, tag, Deadline.never());
      listening[peer] = notice;
    }
    // It fails only after this lane, the communicator or the peer's bootstrap has ended. Then no
    // notice arrives, or none matters.
    notice.thenAccept(
        bytes -> {
          received(peer, bytes);
          // A closed lane may end after fewer collectives than announced, with its communicator.
          listen(peer);
        });
  }

  private void received(int peer, byte[] bytes) {
    try {
      WireReader in =
          new WireReader(
              bytes,
              problem ->
                  new TransportFailure(
                      peer,
                      Text.of(
                          "rank %d sent a malformed notice of its lane, tag=%d: %s",
                          peer, tag, problem)));
      boolean isOfLane = in.int64("lane") == lanes[peer];
      int kind = in.uint8("kind");
      in.check(kind == LEAVES || kind == CALLS, "kind", Integer.toString(kind));
      if (kind == CALLS && isOfLane) {
        lane.comparison.received(peer, in);
      } else if (kind == LEAVES) {
        long rounds = in.int64("collectives", 0, Long.MAX_VALUE);
        in.end();
        if (isOfLane) {
          left(peer, rounds);
          lane.left();
        }
      }
    } catch (TransportFailure malformed) {
      communicator.abort(malformed);
    }
  }

  private void left(int peer, long rounds) {
    synchronized (listening) {
      if (rounds < left.rounds()) {
        left = new Left(peer, rounds);
      }
    }
  }

  /** Stops listening: this lane has nothing in flight and gets no more. */
  void stopListening() {
    synchronized (listening) {
      stopped = true;
      endOfListening.run();
      for (CompletableFuture<?> notice : listening) {
        if (notice != null) {
          notice.cancel(false);
        }
      }
    }
  }

  /**
   * Sends a notice to all peers, unless they all close, too. Does not block. An unreachable peer
   * has left or died itself.
   *
   * @param rounds how many collectives of all ranks this rank has taken part in, or will, because
   *     they are enqueued
   */
  void sendLeave(long rounds) {
    if (communicator.endsTogether()) {
      return;
    }
    byte[] notice = leaving(rounds);
    peers().forEach(peer -> send(peer, notice));
  }

  private byte[] leaving(long rounds) {
    return notice(LEAVES).int64(rounds).toBytes();
  }

  private void send(int peer, byte[] notice) {
    communicator.sendNotice(peer, tag, notice, Deadline.after(SOON));
  }

  /**
   * Sends a peer a message of {@link CallComparison}, until {@link #stopListening}. Waits for
   * nothing.
   */
  void sendCalls(int peer, byte[] calls) {
    synchronized (listening) {
      if (stopped) {
        return;
      }
    }
    send(peer, notice(CALLS).raw(calls).toBytes());
  }

  private WireWriter notice(int kind) {
    return new WireWriter().int64(lanes[rank()]).uint8(kind);
  }

  /**
   * Returns the failure of a collective in which a peer that has left does not take part, or null.
   * Allocates nothing if no peer is missing.
   *
   * @param round the number of the collective on this lane, from 1
   * @param what the run, for the message; its text is asked for only if a peer is missing
   */
  RemoteFailure missing(long round, Object what) {
    Left known = left;
    if (round <= known.rounds()) {
      return null;
    }
    return new RemoteFailure(
        known.peer(),
        Text.of(
            "%s on rank %d: rank %d left after %d collectives of tag %d, this is number %d;"
                + " let every rank enqueue the same collectives before it closes",
            what, rank(), known.peer(), known.rounds(), tag, round));
  }

  /** The times at which runs ran, by the device's clock, with two marks for a run. */
  private static final class Times implements AutoCloseable {
    private final StreamClock clock;

    // All guarded by this.
    private final int[] free = new int[MOST_TIMED];
    private int nFree = MOST_TIMED;
    private final long[] times = new long[2];

    /** Takes over a clock with two points for each of the runs. */
    Times(StreamClock clock) {
      this.clock = clock;
      for (int i = 0; i < MOST_TIMED; i++) {
        free[i] = i + 1;
      }
    }

    /** Marks the begin of a call, before it is enqueued; under the lane's lock. */
    void begin(Run run) {
      synchronized (this) {
        run.timed = nFree == 0 ? 0 : free[--nFree];
      }
      if (run.timed != 0) {
        clock.mark(2 * run.timed - 2);
      }
    }

    /** Marks the end of a call that was just enqueued; under the lane's lock. */
    void enqueued(Run run) {
      if (run.timed != 0) {
        clock.mark(2 * run.timed - 1);
      }
    }

    /** Gives a call that ends its times. Any thread. */
    synchronized void ended(Run run, Outcome outcome) {
      if (run.timed == 0) {
        return;
      }
      boolean ran = outcome == Outcome.DONE || outcome == Outcome.DETACHED;
      int end = 2 * run.timed - 1;
      if (ran && clock.read(end - 1, end, System.nanoTime(), times)) {
        run.begunNs = times[0];
        run.endedNs = times[1];
      }
      free[nFree++] = run.timed;
    }

    @Override
    public void close() {
      clock.close();
    }
  }
}
