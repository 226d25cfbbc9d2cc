package io.fluxccl.collective;

import io.fluxccl.Aborted;
import io.fluxccl.Deadline;
import io.fluxccl.DeviceFailure;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.RemoteFailure;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.transport.RegisteredMemory;
import io.fluxccl.transport.TransportFlags;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Function;
import reactor.core.Exceptions;
import reactor.core.publisher.Mono;
import reactor.core.scheduler.Schedulers;

/**
 * One order of operations: a stream, the connections to all peers, and the algorithms that are
 * ready on them. Threads may enqueue as they like; each run is enqueued as a whole, under one lock
 * that nobody holds for long.
 *
 * <p>What becomes of a single call is up to its {@link LaneAlgorithms}; its two ends are {@link
 * LaneOpening} and {@link LaneClosing}.
 */
final class Lane implements AutoCloseable {
  /** Set-ups open files and map memory, which the thread that received a message must not. */
  static final Executor MAY_BLOCK = Schedulers.boundedElastic()::schedule;

  private final Communicator communicator;
  private final DeviceStream stream;
  private final CollectivesOptions options;
  private final PeerConnections peers;
  private final Registrations registrations;
  private final LaneAlgorithms algorithms;
  private final ConsistencyCheck agreement;
  private final InFlightTracker inFlight;
  private final LeaveNotices leaveNotices;
  private final LaneClosing closing;

  // Ends with the communicator, and then closes this.
  private final CompletableFuture<Void> lifetime = new CompletableFuture<>();

  // No run may come behind the work that closing waits for.
  private final Object enqueueing = new Object();

  // Ranks compare one run after the other. Guarded by enqueueing.
  private CompletableFuture<Void> lastAgreement = CompletableFuture.completedFuture(null);
  private long runs;

  // How many collectives of all ranks were enqueued; guarded by enqueueing.
  private long rounds;

  // How many of them are done. Those who complete runs may come here in another order.
  private final AtomicLong roundsDone = new AtomicLong();

  // Guarded by enqueueing.
  private final Set<CapturedPipeline> captures = new HashSet<>();

  // Written by holders of enqueueing.
  private volatile boolean closed;

  Lane(
      Communicator communicator,
      DeviceStream stream,
      CollectivesOptions options,
      PeerConnections peers,
      List<AlgorithmSet> sets,
      Tuning tuning,
      LeaveNotices leaveNotices) {
    this.communicator = communicator;
    this.stream = stream;
    this.options = options;
    this.peers = peers;
    this.registrations = new Registrations(peers, sets);
    this.algorithms =
        new LaneAlgorithms(
            communicator,
            peers.topology(),
            registrations,
            new AlgorithmSelector(sets, options, tuning, peers.topology()));
    this.inFlight =
        new InFlightTracker(Deadline.after(options.timeout()).remainingNanos(), this::late);
    this.agreement = new ConsistencyCheck(communicator, peers.topology(), options.tag());
    this.leaveNotices = leaveNotices;
    this.closing = new LaneClosing(peers, sets, leaveNotices, stream, inFlight, lifetime);
  }

  /** Begins to listen to the peers, and ends with the communicator. Called once. */
  Lane live() {
    leaveNotices.listen(this::left);
    communicator
        .inFlight(lifetime)
        .whenComplete(
            (ended, reason) -> {
              if (reason != null) {
                if (communicator.isClosed()) {
                  // What is in flight gives up.
                  leaveNotices.send(roundsDone.get());
                }
                inFlight.fail(reason);
                close();
              }
            });
    return this;
  }

  Communicator communicator() {
    return communicator;
  }

  DeviceStream stream() {
    return stream;
  }

  CollectivesOptions options() {
    return options;
  }

  TransportFlags transports() {
    return peers.transports();
  }

  RankTopology topology() {
    return peers.topology();
  }

  Device device() {
    return communicator.device();
  }

  LaneAlgorithms algorithms() {
    return algorithms;
  }

  Registrations registrations() {
    return registrations;
  }

  private void abort(Throwable reason) {
    communicator.abort(FluxCclException.from(reason));
  }

  /**
   * Steps as a cold Mono: subscribing enqueues them all.
   *
   * @param steps in order
   * @param what they are, for messages
   */
  Mono<Void> run(List<Step> steps, Object what) {
    Mono<Void> run = RunMono.of(this, steps, what);
    return options.scheduler() == Schedulers.immediate() ? run : run.publishOn(options.scheduler());
  }

  /** Does a run, which hears of whatever comes of it. Any thread. */
  void submit(Run run) {
    if (options.checked()) {
      compare(run);
    } else {
      start(run, false);
    }
  }

  /** {@link #start} once the ranks agree, and behind the runs that were to be compared before. */
  private void compare(Run run) {
    CompletableFuture<Void> before;
    CompletableFuture<Void> agreed = new CompletableFuture<>();
    long number;
    try {
      synchronized (enqueueing) {
        refuseIfOver();
        check(run.steps, false);
        number = ++runs;
        before = lastAgreement;
        lastAgreement = agreed;
      }
    } catch (Throwable e) {
      refused(run, e);
      return;
    }
    Function<Void, CompletableFuture<Void>> agree = ready -> agree(number, run);
    // On a thread of its own where others come first: of many that are over before their turn each
    // would end the next one, ever deeper.
    CompletableFuture<Void> turn =
        before.isDone()
            ? before.thenCompose(agree)
            : before.thenComposeAsync(agree, Lane.MAY_BLOCK);
    turn.whenComplete(
        (done, failure) -> {
          try {
            if (failure != null) {
              disagreed(run, FluxCclException.from(failure));
            } else if (!run.isOver()) {
              start(run, involvePeers(run.steps));
            }
          } finally {
            agreed.complete(null);
          }
        });
  }

  private CompletableFuture<Void> agree(long number, Run run) {
    if (!run.begin()) {
      // Withdrawn before its turn: the others will see that something is missing.
      return CompletableFuture.completedFuture(null);
    }
    List<BoundCall> calls =
        run.steps.stream().flatMap(step -> step.calls().stream()).map(registrations::bind).toList();
    return agreement.reach(number, calls, Deadline.after(options.timeout()));
  }

  private void disagreed(Run run, FluxCclException reason) {
    // Who finds a mismatch has enqueued nothing. Who finds none and waits aborts by its deadline.
    if (!(reason instanceof InvalidUsage)) {
      communicator.abort(reason);
    }
    run.fail(reason);
  }

  /**
   * Enqueues a run, unless it was cancelled while it waited for those before it.
   *
   * @param agreed whether peers count on it: they enqueue theirs
   */
  private void start(Run run, boolean agreed) {
    CompletableFuture<Void> done;
    try {
      synchronized (enqueueing) {
        refuseIfOver();
        check(run.steps, true);
        if (!run.begin()) {
          return;
        }
        run.lastRound = rounds + roundsOf(run.steps);
        refuseIfMissing(run);
        enqueue(run.steps);
        rounds = run.lastRound;
        done = stream.completion();
        inFlight.add(run);
      }
      // Somebody left meanwhile, and this run was not yet among those in flight.
      refuseIfMissing(run);
      // Failed meanwhile: the kernels may have found that out and done nothing.
      refuseIfFailed();
    } catch (Throwable e) {
      try {
        // Who has closed has told the peers how far it went.
        if (agreed && !closed) {
          abort(e);
        }
      } finally {
        refused(run, e);
      }
      return;
    }
    done.whenComplete(run);
  }

  /** Who waits hears of it also where it is an error that nobody should catch. */
  private static void refused(Run run, Throwable reason) {
    run.fail(reason);
    Exceptions.throwIfFatal(reason);
  }

  private static long roundsOf(List<Step> steps) {
    long rounds = 0;
    for (int i = 0; i < steps.size(); i++) {
      rounds += steps.get(i).rounds();
    }
    return rounds;
  }

  private void refuseIfMissing(Run run) {
    RemoteFailure missing = leaveNotices.missing(run.lastRound, run);
    if (missing != null) {
      communicator.abort(missing);
      throw missing;
    }
  }

  /** A peer has closed its lane. */
  private void left(int peer) {
    Run newest = inFlight.newest();
    RemoteFailure missing = newest == null ? null : leaveNotices.missing(newest.lastRound, newest);
    if (missing != null && communicator.failure() == null) {
      communicator.abort(missing);
    }
  }

  /**
   * Enqueues steps that were checked, all before the first is enqueued: a mistake then harms no
   * other rank. One that shows later aborts, because peers may wait already.
   */
  private void enqueue(List<Step> steps) {
    boolean peersWait = false;
    try {
      for (Step step : steps) {
        step.enqueue(this, stream);
        peersWait |= step.involvesPeers();
      }
    } catch (RuntimeException | Error e) {
      // If the device has failed, the peers may have launched theirs, and would wait for this one.
      if (peersWait || e instanceof DeviceFailure) {
        abort(e);
      }
      throw e;
    }
  }

  private static boolean involvePeers(List<Step> steps) {
    return steps.stream().anyMatch(Step::involvesPeers);
  }

  /**
   * Refuses what can't be right.
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
    synchronized (enqueueing) {
      refuseIfOver();
      check(steps, true);
      CapturedPipeline captured = CapturedPipeline.of(this, steps);
      captures.add(captured);
      return captured;
    }
  }

  /** Closes a captured pipeline between two runs. */
  void close(CapturedPipeline captured) {
    synchronized (enqueueing) {
      if (captured.end()) {
        captures.remove(captured);
      }
    }
  }

  private void refuseIfOver() {
    refuseIfFailed();
    if (closed) {
      throw new InvalidUsage("collectives on rank " + rank() + ": closed");
    }
  }

  private void refuseIfFailed() {
    FluxCclException failure = communicator.failure();
    if (failure != null) {
      throw failure.again();
    }
  }

  private int rank() {
    return communicator.bootstrap().rank();
  }

  /** For other lanes, which hold a lock of their own. */
  void refuseWhenClosed(String why) {
    if (closed) {
      throw new InvalidUsage(why);
    }
  }

  /** The stream is done with a run. */
  void ended(Run run, Throwable failure) {
    // A communicator that was closed here must not take the other ranks with it.
    if (failure != null && communicator.failure() == null) {
      communicator.abort(FluxCclException.from(failure));
    }
    FluxCclException reason = communicator.failure();
    if (reason == null) {
      roundsDone.accumulateAndGet(run.lastRound, Math::max);
      run.complete();
    } else {
      run.fail(reason);
    }
  }

  /** Some run in flight is over. */
  void ended() {
    inFlight.trim();
  }

  private void late(Run run) {
    if (communicator.failure() == null) {
      communicator.abort(TimeoutDiagnosis.of(communicator, run.description(), options.timeout()));
    }
  }

  /** A run was cancelled while it was in flight. */
  void cancelled(Run run) {
    communicator.abort(
        new Aborted(
            rank(), run.description() + " was cancelled by rank " + rank() + " while in flight"));
  }

  /** Registers a buffer on all ranks; see {@link Collectives#register}. */
  CompletableFuture<Registration> register(DeviceBuffer buffer) {
    return registrations.register(buffer, memories -> registered(buffer, memories));
  }

  /** Between two runs: what comes later uses it. */
  private Registration registered(DeviceBuffer buffer, RegisteredMemory[] memories) {
    synchronized (enqueueing) {
      refuseIfOver();
      return registrations.add(buffer, memories, this::close);
    }
  }

  /** Between two runs: what is enqueued may use it, what comes later doesn't. */
  private void close(Registration registration) {
    synchronized (enqueueing) {
      registrations.close(registration);
    }
  }

  /**
   * Closes connections and frees what preparing took, once runs already enqueued have ended. Waits
   * for nothing. Idempotent.
   */
  @Override
  public void close() {
    synchronized (enqueueing) {
      if (closed) {
        return;
      }
      closed = true;
      if (communicator.failure() == null) {
        leaveNotices.send(rounds);
      }
      closing.begin(List.copyOf(captures));
    }
  }
}
