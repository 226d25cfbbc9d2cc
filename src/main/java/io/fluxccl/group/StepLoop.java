// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.group;

import io.fluxccl.Aborted;
import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.NonblockingFuture;
import io.fluxccl.Text;
import io.fluxccl.bootstrap.Bootstrap;
import io.fluxccl.communicator.Communicator;
import java.util.Arrays;
import java.util.Queue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import reactor.core.publisher.Mono;
import reactor.core.scheduler.Scheduler;
import reactor.core.scheduler.Schedulers;

/**
 * Steps that rank 0 leads and the other ranks follow: a server takes requests on rank 0, and all
 * ranks run the same collectives for them. Each step has a command, some bytes that rank 0 sends to
 * the others; every rank then calls the same {@link Step} with it, in the same order.
 *
 * <pre>{@code
 * StepLoop loop = StepLoop.of(group, command -> model.step(command));
 * if (group.rank() == 0) {
 *   loop.step(command).then(loop.step(next)).subscribe();
 * } else {
 *   loop.follow().block(); // until rank 0 calls shutdown()
 * }
 * }</pre>
 *
 * <p>Commands travel through the bootstrap's sockets, not through a collective. A collective that
 * waits for the next command would be an operation in flight: it spins, and it reaches its time
 * limit when no step arrives. A rank that waits here uses no processor time and has no time limit,
 * for hours if need be; the limits of a step are those of its collectives. The price is some 50
 * microseconds a step, compared with a broadcast that followers have enqueued before (see
 * benchmarks/RESULTS.md).
 *
 * <p>Rank 0 is at most {@code maxInFlight} + 16 commands ahead of what each follower has completed.
 * Then it begins no further step until that follower has completed one. If the follower completes
 * none within the time limit of the group's collectives, the job ends with a {@link
 * io.fluxccl.Timeout} that names the follower.
 *
 * <p>Failures: if a {@link Step} throws, returns null or emits an error on any rank, the job fails
 * on every rank, and the failure names that rank and the step. The death of a rank fails the job,
 * too. All pending Monos then fail with that reason, and the steps that have not begun never run.
 *
 * <p>Thread-safe. All ranks must create their loops of one group in the same order.
 */
public final class StepLoop {
  /** The default length of the longest command: 4 KiB. */
  public static final int DEFAULT_COMMAND_BYTES = 4096;

  // Tags of the bootstrap, apart from those of communicators (0x40...).
  static final int FIRST_TAG = 0x50000000;
  private static final byte STEP = 1;
  private static final byte SHUTDOWN = 2;

  private final Rank group;
  private final Bootstrap bootstrap;
  private final Communicator communicator;
  private final int tag;
  private final StepWindow window;
  private final int maxCommandBytes;
  private final int maxInFlight;
  private final Step step;

  private final Queue<QueuedStep> waiting = new ConcurrentLinkedQueue<>();
  private final AtomicInteger inFlight = new AtomicInteger();
  private final AtomicInteger missed = new AtomicInteger();
  private final AtomicBoolean following = new AtomicBoolean();

  /** Completes when the loop has ended and no step is in flight. */
  private final CompletableFuture<Void> ended = NonblockingFuture.create();

  // Guarded by this, so that no step is queued after the shutdown.
  private boolean shutdown;
  private Scheduler thread;

  // Accessed only by the thread that drains.
  private long begun;
  private volatile boolean ending;

  /** The work of one rank in a step. */
  @FunctionalInterface
  public interface Step {
    /**
     * Begins a step. Called for one step after the other, never for two at once. On rank 0, the
     * caller is the thread that subscribes to {@link #step(byte[])}, or one that completes another
     * step. On other ranks, and on rank 0 after a wait for a follower, it is a thread of the loop.
     * None of them may block.
     *
     * @param command as given to {@link StepLoop#step}; a copy of this call's own
     * @return completes when this rank's part is done; subscribed to at once, on this thread, so
     *     that collectives are enqueued in the order of the steps
     */
    Mono<Void> run(byte[] command);
  }

  /** A step, or the shutdown, that waits for its turn. */
  private record QueuedStep(byte[] message, CompletableFuture<Void> done) {
    boolean isShutdown() {
      return message[0] == SHUTDOWN;
    }

    byte[] command() {
      return Arrays.copyOfRange(message, 1, message.length);
    }
  }

  private StepLoop(Rank group, int maxCommandBytes, int maxInFlight, Step step) {
    this.group = group;
    this.bootstrap = group.bootstrap();
    this.communicator = group.communicator();
    this.maxCommandBytes = maxCommandBytes;
    this.maxInFlight = maxInFlight;
    this.step = step;
    this.tag = FIRST_TAG + communicator.nextStepLoop();
    this.window =
        new StepWindow(bootstrap, tag, maxInFlight, group.collectives().options().timeout());
    communicator.inFlight(ended);
  }

  /** {@link #of(Rank, int, int, Step)} with 4 KiB and one step in flight. */
  public static StepLoop of(Rank group, Step step) {
    return of(group, DEFAULT_COMMAND_BYTES, 1, step);
  }

  /**
   * Creates this rank's part of a loop. Sends nothing yet.
   *
   * @param group a rank of the group whose rank 0 leads; in a sub-group, its own rank 0
   * @param maxCommandBytes the longest command, 0 or more; the same on every rank
   * @param maxInFlight how many steps may be in flight on a rank, 1 or more; the same on every
   *     rank. Step n begins on a rank when step n - maxInFlight has completed there. With 1, steps
   *     may share buffers
   * @param step what this rank does in each step
   * @return the loop, which ends with {@link #shutdown} or with the group
   * @throws InvalidUsage if an argument is null or out of range
   */
  public static StepLoop of(Rank group, int maxCommandBytes, int maxInFlight, Step step) {
    InvalidUsage.requireNonNull(group, "step loop", "group");
    InvalidUsage.requireNonNull(step, "step loop", "step");
    if (maxCommandBytes < 0 || maxInFlight < 1) {
      throw InvalidUsage.of(
          "step loop(maxCommandBytes=%s, maxInFlight=%s); give 0 or more, and 1 or more",
          maxCommandBytes, maxInFlight);
    }
    return new StepLoop(group, maxCommandBytes, maxInFlight, step);
  }

  // ---- rank 0 ----

  /**
   * Returns a step on all ranks. Cold: each subscription is one more step. Steps run in the order
   * of their subscriptions; one that may not begin yet waits in a queue that has no limit.
   * Cancelling only detaches the subscriber: the step still runs on every rank.
   *
   * @param command copied by this call
   * @return completes when this rank's part of the step is done; with one step in flight, what runs
   *     at once on this signal runs before the next step begins. Fails with the reason of the job's
   *     end, or with {@link InvalidUsage} after {@link #shutdown}
   * @throws InvalidUsage if the command is too long, or on another rank than 0
   */
  public Mono<Void> step(byte[] command) {
    requireLeader("step");
    InvalidUsage.requireNonNull(command, "step", "command");
    if (command.length > maxCommandBytes) {
      throw InvalidUsage.of(
          "step: a command of %s bytes; the limit of this loop is %s",
          command.length, maxCommandBytes);
    }
    byte[] message = new byte[1 + command.length];
    message[0] = STEP;
    System.arraycopy(command, 0, message, 1, command.length);
    return Mono.defer(() -> Mono.fromFuture(enqueue(message), true));
  }

  private CompletableFuture<Void> enqueue(byte[] message) {
    CompletableFuture<Void> done = communicator.inFlight(NonblockingFuture.create());
    synchronized (this) {
      if (shutdown) {
        done.completeExceptionally(new InvalidUsage("step: this loop was shut down"));
        return done;
      }
      waiting.add(new QueuedStep(message, done));
    }
    drain();
    return done;
  }

  /**
   * Ends the loop on all ranks after the steps that were subscribed to before. Does not wait. The
   * group stays open. Idempotent.
   *
   * @return completes when the steps in flight are done here; {@link #follow} completes on the
   *     others. Fails with the reason of the job's end
   * @throws InvalidUsage on another rank than 0
   */
  public CompletableFuture<Void> shutdown() {
    requireLeader("shutdown");
    synchronized (this) {
      if (!shutdown) {
        shutdown = true;
        waiting.add(new QueuedStep(new byte[] {SHUTDOWN}, ended));
      }
    }
    drain();
    return ended.copy();
  }

  private void requireLeader(String operation) {
    if (group.rank() != 0) {
      throw InvalidUsage.of(
          "%s on rank %s: rank 0 leads; the other ranks call follow", operation, group.rank());
    }
  }

  // ---- the other ranks ----

  /**
   * Follows rank 0. The first subscription begins; later ones share it. Cancelling only detaches
   * the subscriber: this rank continues to follow.
   *
   * @return completes when rank 0 has called {@link #shutdown} and the steps in flight are done
   *     here. Fails with the reason of the job's end, or when rank 0 has left without a shutdown
   * @throws InvalidUsage on rank 0
   */
  public Mono<Void> follow() {
    if (group.rank() == 0) {
      throw new InvalidUsage("follow on rank 0, which leads; call step and shutdown");
    }
    return Mono.defer(
        () -> {
          if (following.compareAndSet(false, true)) {
            // Not on the bootstrap's thread: what a step calls may wait for a driver, and ranks of
            // one JVM share that thread.
            receive(thread());
          }
          return ended();
        });
  }

  /** Returns the thread of this loop, which runs until the loop has ended. */
  private synchronized Scheduler thread() {
    if (thread == null) {
      Scheduler created = Schedulers.newSingle("fluxccl-steps-" + group.rank(), true);
      thread = created;
      ended.whenComplete((done, failure) -> created.dispose());
    }
    return thread;
  }

  private void receive(Scheduler thread) {
    bootstrap
        .recv(0, tag, Deadline.never())
        .whenCompleteAsync(
            (message, failure) -> received(message, failure, thread), thread::schedule);
  }

  private void received(byte[] message, Throwable failure, Scheduler thread) {
    if (failure != null) {
      ended.completeExceptionally(FluxCclException.from(failure));
      return;
    }
    if (message.length < 1
        || message.length > 1 + maxCommandBytes
        || message[0] < STEP
        || message[0] > SHUTDOWN) {
      communicator.abort(
          Aborted.of(
              0,
              "rank %s: rank 0 sent a malformed command (%s bytes, at most %s expected)",
              group.rank(),
              message.length,
              1 + maxCommandBytes));
      return;
    }
    QueuedStep turn = new QueuedStep(message, NonblockingFuture.create());
    if (!turn.isShutdown() && !window.received()) {
      communicator.abort(
          Aborted.of(
              0,
              "rank %s: rank 0 sent over %s commands that this rank has not completed; give the"
                  + " same maxInFlight on every rank",
              group.rank(),
              window.size()));
      return;
    }
    waiting.add(turn);
    if (!turn.isShutdown()) {
      receive(thread); // the next command travels while this step begins
    }
    drain();
  }

  // ---- every rank ----

  /**
   * Returns the end of this loop, on any rank.
   *
   * @return completes as {@link #shutdown} and {@link #follow} do; fails with the reason of the
   *     job's end
   */
  public Mono<Void> ended() {
    return Mono.fromFuture(ended, true);
  }

  /**
   * Begins the steps that may begin. One thread at a time does so, also on behalf of the others.
   */
  private void drain() {
    if (missed.getAndIncrement() != 0) {
      return;
    }
    int seen = 1;
    do {
      while (inFlight.get() < maxInFlight && communicator.failure() == null) {
        QueuedStep next = waiting.peek();
        if (next == null || !mayBegin(next)) {
          break;
        }
        begin(waiting.poll());
      }
      if (ending && inFlight.get() == 0) {
        ended.complete(null);
      }
      seen = missed.addAndGet(-seen);
    } while (seen != 0);
  }

  /** Returns whether the followers have room for a step. If not, drains again once they have. */
  private boolean mayBegin(QueuedStep next) {
    return group.rank() != 0
        || next.isShutdown()
        || window.isOpen(() -> thread().schedule(this::drain), communicator::abort);
  }

  private void begin(QueuedStep turn) {
    if (group.rank() == 0) {
      if (!turn.isShutdown()) {
        window.sending();
      }
      send(turn.message());
    }
    if (turn.isShutdown()) {
      ending = true;
      return;
    }
    long number = begun++;
    inFlight.incrementAndGet();
    Mono<Void> run;
    try {
      run = step.run(turn.command());
      InvalidUsage.requireNonNull(run, "step", "its Mono");
    } catch (RuntimeException | Error e) {
      run = Mono.error(e);
    }
    run.subscribe(null, failure -> failed(number, failure), () -> done(turn));
  }

  /** Sends to all others. A send that fails ends the job: that rank would miss a step. */
  private void send(byte[] message) {
    for (int peer = 1; peer < group.nRanks(); peer++) {
      bootstrap
          .send(peer, tag, message, Deadline.never())
          .exceptionally(
              failure -> {
                communicator.abort(FluxCclException.from(failure));
                return null;
              });
    }
  }

  private void done(QueuedStep turn) {
    // Before the next step begins, which may overwrite what the subscriber reads.
    turn.done().complete(null);
    inFlight.decrementAndGet();
    if (group.rank() != 0) {
      window.completed();
    }
    drain();
  }

  /** Ends the job, unless its end is what the step failed with. Pending futures are tied to it. */
  private void failed(long number, Throwable failure) {
    int rank = group.rank();
    communicator.abort(
        new Aborted(
            rank, Text.of("step %s failed on rank %s: %s", number, rank, failure), failure));
  }
}
