// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.Aborted;
import io.fluxccl.Deadline;
import io.fluxccl.DeviceFailure;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.RemoteFailure;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.concurrent.BlockingTasks;
import io.fluxccl.concurrent.Closing;
import io.fluxccl.concurrent.Lifecycle;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.trace.Snapshot;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Supplier;
import java.util.function.UnaryOperator;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import reactor.core.Exceptions;
import reactor.core.publisher.Mono;
import reactor.core.scheduler.Schedulers;

/**
 * One order of operations: a stream, the connections to all peers, and the algorithms prepared for
 * them. Any thread may enqueue; each run is enqueued as a whole, under one lock that is held
 * briefly. {@link LaneOpening} creates a lane.
 */
final class Lane implements AutoCloseable {
  private static final Logger LOG = LoggerFactory.getLogger(Lane.class);
  private static final AtomicLong NUMBERS = new AtomicLong();

  final Communicator communicator;
  final DeviceStream stream;
  final CollectivesOptions options;
  final PeerConnections peers;
  final RankTopology topology;
  final Registrations registrations;
  final AlgorithmSelector algorithms;
  final LaneWatch watch;
  final CallComparison comparison;

  /** Time limit of a run in ns, unless the run has its own. */
  final long limitNs;

  private final List<AlgorithmSet> sets;
  private final ConsistencyCheck consistency;
  private final Lifecycle lifecycle = new Lifecycle("lane");

  // Fails with the communicator, and then closes this lane.
  private final CompletableFuture<Void> lifetime = new CompletableFuture<>();

  // Lock of enqueueing: after closing has begun, no run may be enqueued.
  final Object enqueueing = new Object();

  /** Position of its lock in the order in which locks of several lanes are taken. */
  private final long number = NUMBERS.getAndIncrement();

  /** The last run of another lane that has a collective of this one. */
  private final AtomicReference<Others.Use> use = new AtomicReference<>(Others.Use.NONE);

  private static final UnaryOperator<Snapshot> NO_NAMED_CALLS =
      dump -> dump.with("named", List.of());

  /**
   * Adds the named calls of this rank that wait for other ranks to a dump of this lane. Replaced if
   * this is the lane of named calls, which begin when all ranks are ready.
   */
  volatile UnaryOperator<Snapshot> namedWaits = NO_NAMED_CALLS;

  /** Why no more runs are enqueued: a peer that has left takes no part in one. Null before that. */
  private volatile RemoteFailure absent;

  // Number of collectives of all ranks that were enqueued; written under enqueueing.
  volatile long rounds;

  // Number of these that are done. Threads may report completed runs out of order.
  final AtomicLong roundsDone = new AtomicLong();

  // Guarded by enqueueing.
  private final Set<CapturedPipeline> captures = new HashSet<>();

  /**
   * Takes the parts of a lane.
   *
   * @param isStreamOwn whether the lane closes its stream, which otherwise is the caller's
   * @param ledger null if there is none
   */
  Lane(
      DeviceStream stream,
      boolean isStreamOwn,
      PeerConnections peers,
      List<AlgorithmSet> sets,
      Tuning tuning,
      CallLedger ledger) {
    this.communicator = peers.communicator();
    this.stream = stream;
    this.options = peers.options();
    this.peers = peers;
    this.topology = peers.topology();
    this.sets = sets;
    this.registrations = new Registrations(peers, sets, enqueueing, this::refuseIfOver);
    this.algorithms = new AlgorithmSelector(peers, registrations, sets, options, tuning);
    this.limitNs = Deadline.after(options.timeout()).timeout().toNanos();
    this.consistency = new ConsistencyCheck(communicator, registrations, options.tag());
    this.watch = new LaneWatch(this);
    this.comparison = new CallComparison(this, ledger);
    // Closed in reverse order.
    lifecycle.own(watch);
    lifecycle.own(() -> Closing.all(isStreamOwn ? stream : null));
    lifecycle.own(() -> Closing.all(ledger));
    lifecycle.own(watch::stopListening);
    lifecycle.own(this::closeConnections);
    lifecycle.own(() -> Closing.all(sets));
  }

  /** Listens to the peers. A failure closes this lane, unless its stream is another owner's. */
  Lane live(boolean isStreamOwn) {
    watch.listen();
    peers.onOtherCall = comparison::differs;
    communicator
        .inFlight(lifetime)
        .exceptionally(
            reason -> {
              if (communicator.isClosed()) {
                watch.sendLeave(roundsDone.get()); // the runs in flight give up
              }
              watch.fail(reason);
              // Another owner may still launch graphs on it, until the communicator's end.
              if (isStreamOwn) {
                logError(this::close);
              }
              communicator.closed().thenRun(() -> logError(this::close));
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
        Others.areUsed(steps) ? Run.mono(this, steps, what, limitNs) : Run.mono(this, steps, what));
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
      refuseIfMissing(this, run, run.lastRound);
      // If the communicator has failed meanwhile, the kernels may have detected that and done
      // nothing.
      refuseIfFailed();
    } catch (Throwable e) {
      try {
        // A closed lane has sent the peers the number of its collectives, so they don't wait for
        // more.
        if (agreed && absent == null && !lifecycle.isClosed()) {
          communicator.abort(FluxCclException.from(e));
        }
      } finally {
        refused(run, e);
      }
      return;
    }
    done.whenComplete(run);
  }

  private <T> T locked(Others others, Supplier<T> body) {
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
    refuseIfMissing(this, run, run.lastRound);
    if (run.others() != null) {
      run.others().begin(run);
    }
    enqueue(run, steps);
    rounds = run.lastRound;
    CompletableFuture<Void> done = stream.completion();
    watch.add(run);
    return done;
  }

  /**
   * Fails a run, also for an error that must not be caught, which is then thrown on. If a peer has
   * left, the reason is the failure of the job if it comes soon, perhaps from that peer.
   */
  private void refused(Run run, Throwable reason) {
    String job = communicator.bootstrap().name();
    if (reason instanceof RemoteFailure missing && absent != null) {
      communicator.verdict(missing).thenAccept(news -> run.fail(news.inJob(job)));
      return;
    }
    run.fail(reason instanceof FluxCclException known ? known.inJob(job) : reason);
    Exceptions.throwIfFatal(reason);
  }

  /** Returns other steps while the stream's owner captures it. */
  private List<Step> enqueuable(List<Step> steps) {
    return stream.isCapturing() ? Step.forOwnersGraph(steps, options.checked()) : steps;
  }

  /** Refuses a run that some lane executes if a peer takes no part in its collectives here. */
  private void refuseIfMissing(Lane executes, Run run, long lastRound) {
    RemoteFailure missing = watch.missing(lastRound, run);
    if (missing != null) {
      absent = missing; // later runs must not overtake this one until the job has failed
      executes.absent = missing;
      abort(missing);
      throw missing;
    }
  }

  /** Aborts because a peer has left: for the reason of that peer, if it comes soon. */
  private void abort(RemoteFailure missing) {
    communicator.verdict(missing).thenAccept(communicator::abort);
  }

  /** Called when a peer has closed its lane. */
  void left() {
    Run newest = watch.newest();
    RemoteFailure missing = newest == null ? null : watch.missing(newest.lastRound, newest);
    Others.Use other = use.get();
    if (missing == null && other.isInFlight()) {
      missing = watch.missing(other.lastRound(), other.run());
    }
    if (missing != null && communicator.failure() == null) {
      abort(missing);
    }
  }

  /**
   * Returns the number of collectives of all ranks that this rank has enqueued, for a leave notice;
   * the largest number if it may enqueue more.
   */
  long roundsToLeave() {
    return consistency.isIdle() && namedWaits == NO_NAMED_CALLS ? rounds : Long.MAX_VALUE;
  }

  /**
   * Enqueues steps after all of them were checked, so that a mistake harms no other rank. An error
   * at this point aborts, because peers may wait already.
   */
  private void enqueue(Run run, List<Step> steps) {
    boolean peersWait = false;
    try {
      watch.begin(run);
      for (Step step : steps) {
        // Steps that the stream's owner captures are not compared: their later runs are unknown
        // here.
        step.enqueue(this, stream, steps == run.steps);
        peersWait |= step.involvesPeers();
      }
      watch.enqueued(run, steps);
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
        Others.of(this, steps),
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
    if (lifecycle.isClosed()) {
      throw InvalidUsage.of("collectives on rank %d: closed", rank());
    }
    if (absent != null) {
      throw absent.again();
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
    if (lifecycle.isClosed()) {
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
    Others others = run.others();
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
      if (!lifecycle.beginClose()) {
        return;
      }
      if (communicator.failure() == null) {
        watch.sendLeave(rounds);
      }
      List<CapturedPipeline> open = List.copyOf(captures);
      // Kernels in flight use the peers' memory; after an abort they end within a bounded number of
      // polls.
      communicator.device().whenEnqueuedWorkIsDone(() -> end(open));
    }
  }

  /** Closes the recorded graphs, and then frees the parts, once nothing enqueued uses them. */
  private void end(List<CapturedPipeline> open) {
    try {
      Closing.all(open.stream().<AutoCloseable>map(captured -> captured::end).toList());
    } finally {
      if (communicator.failure() == null) {
        drain();
      } else {
        free();
      }
    }
  }

  /** Frees the parts after the families have drained what peers may still send. */
  private void drain() {
    CompletableFuture<Void> drained =
        CompletableFuture.allOf(
            sets.stream().map(Lane::drain).toArray(CompletableFuture<?>[]::new));
    if (drained.isDone()) {
      free();
    } else {
      // Not on the thread that completes it: freeing may wait for that thread.
      drained.whenCompleteAsync((done, failure) -> logError(this::free), BlockingTasks.EXECUTOR);
    }
  }

  private static CompletableFuture<Void> drain(AlgorithmSet set) {
    try {
      return set.drain();
    } catch (RuntimeException e) {
      return CompletableFuture.failedFuture(e);
    }
  }

  private void free() {
    try {
      lifecycle.closeChildren();
    } finally {
      lifetime.complete(null);
    }
  }

  /** Without a failure, connections stay open until the peers close theirs. */
  private void closeConnections() {
    if (communicator.failure() == null) {
      peers.leave();
    } else {
      peers.close();
    }
  }

  /** Runs a close action and logs its failure, because there is no caller to throw it to. */
  private void logError(Runnable close) {
    try {
      close.run();
    } catch (RuntimeException | Error e) {
      LOG.warn(
          "rank {}: closing a lane failed; some of its resources were not released", rank(), e);
    }
  }

  /**
   * The lanes that a run uses in addition to the one that executes it: steps of {@link
   * Pipeline#then(Collectives, CollectiveCall)}. Their locks are taken in the order of the lanes'
   * numbers, so that two such runs can't wait for each other. Their communicators belong to the
   * same job, so they fail together. One object for each run.
   */
  static final class Others {
    /**
     * The last run of another lane that has collectives of a lane.
     *
     * @param lastRound the number of the last of them on the lane
     */
    record Use(Run run, long lastRound) {
      static final Use NONE = new Use(null, 0);

      boolean isInFlight() {
        return run != null && !run.isOver();
      }
    }

    private final Lane thisLane;
    private final List<Lane> lanes;

    /** The other lanes and this lane, sorted by number (the lock order). */
    private final List<Lane> locked;

    /**
     * The number of this run's collectives of all ranks, by lane; then the round of the last one.
     */
    private final int[] rounds;

    private final long[] lastRounds;

    private Others(Lane thisLane, List<Step.CollectOn> steps) {
      this.thisLane = thisLane;
      this.lanes = steps.stream().map(Step.CollectOn::other).distinct().toList();
      this.locked = new ArrayList<>(lanes);
      locked.add(thisLane);
      locked.sort(Comparator.comparingLong(lane -> lane.number));
      this.rounds = new int[lanes.size()];
      this.lastRounds = new long[lanes.size()];
      for (Step.CollectOn step : steps) {
        rounds[lanes.indexOf(step.other())] += step.what().collective().isByAll() ? 1 : 0;
      }
    }

    /** Returns the other lanes of steps, or null if there is none. */
    static Others of(Lane thisLane, List<Step> steps) {
      return areUsed(steps)
          ? new Others(
              thisLane, steps.stream().flatMap(step -> step.onOtherLanes().stream()).toList())
          : null;
    }

    /** Returns whether steps use other lanes. Allocates nothing. */
    static boolean areUsed(List<Step> steps) {
      for (int i = 0; i < steps.size(); i++) {
        if (!steps.get(i).onOtherLanes().isEmpty()) {
          return true;
        }
      }
      return false;
    }

    /** Returns which lanes steps use, for messages; empty if only the own one. */
    static String describe(Lane thisLane, List<Step> steps) {
      Others others = of(thisLane, steps);
      return others == null
          ? ""
          : Stream.concat(Stream.of(thisLane), others.lanes.stream())
              .map(
                  lane ->
                      (lane.communicator.bootstrap().name() + " tag=" + lane.options.tag()).strip())
              .collect(Collectors.joining(" and ", " of ", " (in this order on every rank?)"));
    }

    /** Executes something with the locks of all lanes. */
    <T> T locked(Supplier<T> body) {
      return locked(0, body);
    }

    private <T> T locked(int index, Supplier<T> body) {
      if (index == locked.size()) {
        return body.get();
      }
      synchronized (locked.get(index).enqueueing) {
        return locked(index + 1, body);
      }
    }

    /** Counts the collectives, before they are enqueued; with all locks. */
    void begin(Run run) {
      for (int i = 0; i < lanes.size(); i++) {
        lastRounds[i] = lanes.get(i).rounds + rounds[i];
        lanes.get(i).refuseIfMissing(thisLane, run, lastRounds[i]);
      }
      for (int i = 0; i < lanes.size(); i++) {
        lanes.get(i).rounds = lastRounds[i];
        lanes.get(i).use.set(new Use(run, lastRounds[i]));
      }
    }

    /**
     * Returns the communicator that knows which rank a run waits for: the own one, or else another.
     */
    Communicator waiting() {
      return Stream.concat(Stream.of(thisLane), lanes.stream())
          .map(lane -> lane.communicator)
          .filter(Others::isWaiting)
          .findFirst()
          .orElse(thisLane.communicator);
    }

    private static boolean isWaiting(Communicator communicator) {
      return communicator.bootstrap().unresponsiveRank().isPresent()
          || communicator.abortFlag().waitingFor() >= 0;
    }

    /** Counts the collectives as done, and removes the run from the other lanes. */
    void end(Run run) {
      for (int i = 0; i < lanes.size(); i++) {
        Lane lane = lanes.get(i);
        lane.roundsDone.accumulateAndGet(lastRounds[i], Math::max);
        Use last = lane.use.get();
        if (last.run() == run) {
          lane.use.compareAndSet(last, Use.NONE); // unless a later run uses the lane by now
        }
      }
    }

    /** Aborts the communicator of each other lane whose kernels have found a fault. */
    void abortAtFaults() {
      for (Lane lane : lanes) {
        FluxCclException fault = lane.algorithms.fault();
        if (fault != null && lane.communicator.failure() == null) {
          lane.communicator.abort(fault);
        }
      }
    }

    /** Returns whether one of the other lanes' communicators has failed or was closed. */
    boolean haveFailed() {
      return lanes.stream().anyMatch(lane -> lane.communicator.failure() != null);
    }

    /** Returns whether ranks' collectives differ on one of the other lanes, which then fails. */
    boolean areRefused() {
      for (int i = 0; i < lanes.size(); i++) {
        if (lanes.get(i).comparison.refuses(lastRounds[i])) {
          return true;
        }
      }
      return false;
    }

    /** Fails a run after another lane has failed. That failure ends the job, and so this lane. */
    void fail(Run run) {
      for (Lane lane : lanes) {
        if (lane.communicator.isClosed()) {
          String text = "%s: the communicator of another lane that it uses was closed";
          thisLane.communicator.abort(Aborted.of(FluxCclException.NO_RANK, text, run));
        }
      }
      thisLane.communicator.failed().thenAccept(run::fail);
    }
  }
}
