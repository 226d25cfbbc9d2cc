// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.Aborted;
import io.fluxccl.Deadline;
import io.fluxccl.DeviceFailure;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.RemoteFailure;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.trace.Outcome;
import java.time.Duration;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Supplier;
import reactor.core.Exceptions;
import reactor.core.publisher.Mono;
import reactor.core.scheduler.Schedulers;

/**
 * One order of operations: a stream, the connections to all peers, and the algorithms prepared for
 * them. Any thread may enqueue; each run is enqueued as a whole, under one lock that is held
 * briefly. {@link LaneOpening} creates a lane, {@link LaneClosing} frees it.
 */
final class Lane implements AutoCloseable {
  private static final AtomicLong NUMBERS = new AtomicLong();

  final Communicator communicator;
  final DeviceStream stream;
  final CollectivesOptions options;
  final PeerConnections peers;
  final Registrations registrations;
  final AlgorithmSelector algorithms;
  final InFlightTracker inFlight;
  final CallComparison comparison;

  /** Time limit of a run in ns, unless the run has its own. */
  final long limitNs;

  private final ConsistencyCheck consistency;
  private final LeaveNotices leaveNotices;
  private final LaneClosing closing;
  private final CallLog calls;

  // Fails with the communicator, and then closes this lane.
  private final CompletableFuture<Void> lifetime = new CompletableFuture<>();

  // Lock of enqueueing: after closing has begun, no run may be enqueued.
  final Object enqueueing = new Object();

  /** Position of its lock in the order in which locks of several lanes are taken. */
  final long number = NUMBERS.getAndIncrement();

  /** The last run of another lane that has a collective of this one. */
  final AtomicReference<OtherLanes.Use> use = new AtomicReference<>(OtherLanes.Use.NONE);

  // Number of collectives of all ranks that were enqueued; written under enqueueing.
  volatile long rounds;

  // Number of these that are done. Threads may report completed runs out of order.
  final AtomicLong roundsDone = new AtomicLong();

  // Guarded by enqueueing.
  private final Set<CapturedPipeline> captures = new HashSet<>();

  Lane(
      LaneStream stream,
      CollectivesOptions options,
      PeerConnections peers,
      List<AlgorithmSet> sets,
      Tuning tuning,
      LeaveNotices leaveNotices,
      CallLedger ledger) {
    this.communicator = peers.communicator();
    this.stream = stream.stream();
    this.options = options;
    this.peers = peers;
    this.registrations = new Registrations(peers, sets, enqueueing, this::refuseIfOver);
    this.algorithms = new AlgorithmSelector(peers, registrations, sets, options, tuning);
    this.limitNs = Deadline.after(options.timeout()).timeout().toNanos();
    this.inFlight = new InFlightTracker(run -> LateRuns.end(this, run));
    this.consistency = new ConsistencyCheck(communicator, registrations, options.tag());
    this.leaveNotices = leaveNotices;
    this.comparison = new CallComparison(this, ledger, leaveNotices);
    this.calls = new CallLog(this);
    this.closing =
        new LaneClosing(peers, sets, leaveNotices, ledger, stream, inFlight, calls, lifetime);
  }

  /** Listens to the peers. A failure closes this lane, unless its stream is another owner's. */
  Lane live(boolean isStreamOwn) {
    leaveNotices.listen(
        this::left, comparison::received, () -> consistency.isIdle() ? rounds : Long.MAX_VALUE);
    peers.onOtherCall = comparison::differs;
    communicator
        .inFlight(lifetime)
        .exceptionally(
            reason -> {
              if (communicator.isClosed()) {
                leaveNotices.send(roundsDone.get()); // the runs in flight give up
              }
              inFlight.fail(reason);
              // Another owner may still launch graphs on it, until the communicator's end.
              if (isStreamOwn) {
                closing.logError(this::close);
              }
              communicator.closed().thenRun(() -> closing.logError(this::close));
              return null;
            });
    return this;
  }

  private int rank() {
    return communicator.bootstrap().rank();
  }

  /**
   * Returns steps as a cold Mono: subscribing enqueues them all.
   *
   * @param steps in order
   * @param what the steps are, for messages
   */
  Mono<Void> run(List<Step> steps, Object what) {
    return published(
        OtherLanes.areUsed(steps)
            ? Run.mono(this, steps, what, limitNs)
            : Run.mono(this, steps, what));
  }

  /** {@link #run(List, Object)} with a time limit of its own. */
  Mono<Void> run(List<Step> steps, Object what, Duration limit) {
    CollectivesOptions.requirePositive("limit", limit);
    return published(Run.mono(this, steps, what, Deadline.after(limit).timeout().toNanos()));
  }

  Mono<Void> published(Mono<Void> run) {
    return options.scheduler() == Schedulers.immediate() ? run : run.publishOn(options.scheduler());
  }

  /** Executes a run, and reports the outcome to it. Any thread. */
  void submit(Run run) {
    if (!options.checked()) {
      start(run, false);
      return;
    }
    ConsistencyCheck.CompareTicket ticket;
    try {
      ticket =
          locked(
              run.others(),
              () -> {
                refuseIfOver();
                check(enqueuable(run.steps), false);
                return consistency.nextTicket();
              });
    } catch (Throwable e) {
      refused(run, e);
      return;
    }
    consistency.compare(
        ticket, run, () -> start(run, run.steps.stream().anyMatch(Step::involvesPeers)));
  }

  /**
   * Enqueues a run, unless it was withdrawn while it waited for those before it.
   *
   * @param agreed whether peers count on it, because they enqueue theirs
   */
  private void start(Run run, boolean agreed) {
    CompletableFuture<Void> done;
    try {
      done = run.others() == null ? enqueueAlone(run) : run.others().locked(() -> enqueue(run));
      if (done == null) {
        return;
      }
      // A peer may have left before this run was among those in flight.
      refuseIfMissing(run, run.lastRound);
      // If the communicator has failed meanwhile, the kernels may have detected that and done
      // nothing.
      refuseIfFailed();
    } catch (Throwable e) {
      try {
        // A closed lane has sent the peers the number of its collectives, so they don't wait for
        // more.
        if (agreed && !closing.hasBegun()) {
          communicator.abort(FluxCclException.from(e));
        }
      } finally {
        refused(run, e);
      }
      return;
    }
    done.whenComplete(run);
  }

  private <T> T locked(OtherLanes others, Supplier<T> body) {
    if (others != null) {
      return others.locked(body);
    }
    synchronized (enqueueing) {
      return body.get();
    }
  }

  // Without a lambda, which would be allocated for each run.
  private CompletableFuture<Void> enqueueAlone(Run run) {
    synchronized (enqueueing) {
      return enqueue(run);
    }
  }

  /** Enqueues a run, under the lock; returns its completion, or null if it was withdrawn. */
  private CompletableFuture<Void> enqueue(Run run) {
    refuseIfOver();
    check(run.steps, true);
    List<Step> steps = enqueuable(run.steps);
    if (!run.begin()) {
      return null;
    }
    // The owner's graph runs them as often as the owner likes: no peer counts on these.
    run.lastRound = steps == run.steps ? rounds + Step.rounds(steps) : rounds;
    refuseIfMissing(run, run.lastRound);
    if (run.others() != null) {
      run.others().begin(run);
    }
    enqueue(run, steps);
    rounds = run.lastRound;
    CompletableFuture<Void> done = stream.completion();
    inFlight.add(run);
    return done;
  }

  /** Fails a run, also for an error that must not be caught, which is then thrown on. */
  private void refused(Run run, Throwable reason) {
    String job = communicator.bootstrap().name();
    run.fail(reason instanceof FluxCclException known ? known.inJob(job) : reason);
    Exceptions.throwIfFatal(reason);
  }

  /** Returns other steps while the stream's owner captures it. */
  private List<Step> enqueuable(List<Step> steps) {
    return stream.isCapturing() ? Step.forOwnersGraph(steps, options.checked()) : steps;
  }

  void refuseIfMissing(Run run, long lastRound) {
    RemoteFailure missing = leaveNotices.missing(lastRound, run);
    if (missing != null) {
      communicator.abort(missing);
      throw missing;
    }
  }

  /** Called when a peer has closed its lane. */
  private void left(int peer) {
    Run newest = inFlight.newest();
    RemoteFailure missing = newest == null ? null : leaveNotices.missing(newest.lastRound, newest);
    OtherLanes.Use other = use.get();
    if (missing == null && other.isInFlight()) {
      missing = leaveNotices.missing(other.lastRound(), other.run());
    }
    if (missing != null && communicator.failure() == null) {
      communicator.abort(missing);
    }
  }

  /**
   * Enqueues steps after all of them were checked, so that a mistake harms no other rank. An error
   * at this point aborts, because peers may wait already.
   */
  private void enqueue(Run run, List<Step> steps) {
    boolean peersWait = false;
    try {
      calls.begin(run);
      for (Step step : steps) {
        // Steps that the stream's owner captures are not compared: their later runs are unknown
        // here.
        step.enqueue(this, stream, steps == run.steps);
        peersWait |= step.involvesPeers();
      }
      calls.enqueued(run, steps, rounds);
    } catch (RuntimeException | Error e) {
      // If the device has failed, the peers may have launched theirs, and would wait for this one.
      if (peersWait || e instanceof DeviceFailure) {
        communicator.abort(FluxCclException.from(e));
      }
      throw e;
    }
  }

  /**
   * Refuses invalid steps.
   *
   * @param soon whether they are enqueued next
   */
  private void check(List<Step> steps, boolean soon) {
    for (int i = 0; i < steps.size(); i++) {
      steps.get(i).check(this, soon && i == 0);
    }
  }

  /** Records steps, while nothing is enqueued on this lane; see {@link Pipeline#capture}. */
  CapturedPipeline capture(List<Step> steps) {
    return locked(
        OtherLanes.of(this, steps),
        () -> {
          refuseIfOver();
          check(steps, true);
          CapturedPipeline captured = CapturedPipeline.of(this, steps);
          captures.add(captured);
          return captured;
        });
  }

  /** Closes a captured pipeline between two runs. */
  void close(CapturedPipeline captured) {
    synchronized (enqueueing) {
      if (captured.end()) {
        captures.remove(captured);
      }
    }
  }

  void refuseIfOver() {
    refuseIfFailed();
    if (closing.hasBegun()) {
      throw InvalidUsage.of("collectives on rank %d: closed", rank());
    }
  }

  private void refuseIfFailed() {
    FluxCclException failure = communicator.failure();
    if (failure != null) {
      throw failure.again();
    }
  }

  /** Called by other lanes, which hold a lock of their own. */
  void refuseWhenClosed(String why) {
    if (closing.hasBegun()) {
      throw new InvalidUsage(why);
    }
  }

  /** Called when the stream is done with a run. */
  void ended(Run run, Throwable failure) {
    // A communicator that was closed here must not fail the other ranks' communicators.
    if (failure != null && communicator.failure() == null) {
      communicator.abort(FluxCclException.from(failure));
    }
    FluxCclException reason = communicator.failure();
    OtherLanes others = run.others();
    if (reason != null) {
      run.fail(reason);
    } else if (failure != null || comparison.refuses(run)) {
      // If it names a rank, the communicator waits a moment for a report that this rank has died.
      communicator.failed().thenAccept(run::fail);
    } else if (others != null && others.haveFailed()) {
      others.fail(run);
    } else {
      roundsDone.accumulateAndGet(run.lastRound, Math::max);
      if (others != null) {
        others.end(run);
      }
      run.complete();
    }
  }

  /** Called when a run in flight is over. */
  void ended(Run run, Outcome outcome) {
    calls.ended(run, outcome);
    inFlight.trim();
  }

  /** Called when a run was cancelled while it was in flight, and that aborts. */
  void cancelled(Run run) {
    communicator.abort(
        Aborted.of(rank(), "%s was cancelled by rank %d while in flight", run, rank()));
  }

  /**
   * Closes connections and frees what the families prepared, after the runs enqueued have ended.
   * Waits for nothing. Idempotent.
   */
  @Override
  public void close() {
    synchronized (enqueueing) {
      if (closing.hasBegun()) {
        return;
      }
      if (communicator.failure() == null) {
        leaveNotices.send(rounds);
      }
      closing.begin(List.copyOf(captures));
    }
  }
}
