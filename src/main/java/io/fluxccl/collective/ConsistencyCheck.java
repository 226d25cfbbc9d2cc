// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import static io.fluxccl.collective.Collective.ALL_GATHER;
import static io.fluxccl.collective.Collective.REDUCE_SCATTER;

import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.Text;
import io.fluxccl.Timeout;
import io.fluxccl.TransportFailure;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.concurrent.BlockingTasks;
import io.fluxccl.device.DeviceBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.function.Function;
import java.util.stream.IntStream;

/**
 * The comparison of calls between ranks before they are enqueued: checked mode. Each rank sends
 * each peer a text of its calls, with the bytes that it would send there and expects from there. A
 * rank that finds a difference enqueues nothing. All ranks find a difference in parameters that
 * must be equal on all of them, because each compares with each. Only the two ranks concerned find
 * a difference in the bytes that they send each other. A third rank that agrees with both enqueues,
 * and waits for them until its time limit.
 */
final class ConsistencyCheck {
  private final Communicator communicator;
  private final Registrations registrations;
  private final int rank;
  private final int nRanks;
  private final int tag;

  // Runs are compared one after the other; written under the lane's lock.
  private volatile CompletableFuture<Void> last = CompletableFuture.completedFuture(null);
  private long runs;

  ConsistencyCheck(Communicator communicator, Registrations registrations, int tag) {
    this.communicator = communicator;
    this.registrations = registrations;
    this.rank = communicator.bootstrap().rank();
    this.nRanks = communicator.bootstrap().nRanks();
    this.tag = tag;
  }

  /** Returns the turn of the next run. Called under the lane's lock. */
  CompareTicket nextTicket() {
    CompareTicket ticket = new CompareTicket(++runs, last, new CompletableFuture<>());
    last = ticket.done();
    return ticket;
  }

  /** Returns whether no run is being compared: all have been enqueued, or refused. */
  boolean isIdle() {
    return last.isDone();
  }

  /** The place of a run among those that are compared. */
  record CompareTicket(long number, CompletableFuture<Void> before, CompletableFuture<Void> done) {}

  /** Starts a run once the ranks agree, after the runs of earlier turns; or fails the run. */
  void compare(CompareTicket ticket, Run run, Runnable start) {
    Function<Void, CompletableFuture<Void>> reach = ready -> reachAgreement(ticket.number(), run);
    // On another thread after an earlier run: of many runs that are over before their turn, each
    // would end the next one, ever deeper in one stack.
    CompletableFuture<Void> agreed =
        ticket.before().isDone()
            ? ticket.before().thenCompose(reach)
            : ticket.before().thenComposeAsync(reach, BlockingTasks.EXECUTOR);
    agreed.whenComplete((ready, failure) -> compared(ticket, run, start, failure));
  }

  private void compared(CompareTicket ticket, Run run, Runnable start, Throwable failure) {
    try {
      if (failure != null) {
        disagreed(run, FluxCclException.from(failure));
      } else if (!run.isOver()) {
        start.run();
      }
    } finally {
      ticket.done().complete(null);
    }
  }

  private void disagreed(Run run, FluxCclException reason) {
    // A rank that finds a mismatch has enqueued nothing. A rank that finds none and waits aborts at
    // its deadline.
    if (!(reason instanceof InvalidUsage)) {
      communicator.abort(reason);
    }
    run.fail(reason.inJob(communicator.bootstrap().name()));
  }

  /**
   * Compares a run with all peers. Does nothing if it was withdrawn before; the peers detect that.
   */
  private CompletableFuture<Void> reachAgreement(long number, Run run) {
    if (!run.begin()) {
      return CompletableFuture.completedFuture(null);
    }
    Deadline deadline = Deadline.after(Duration.ofNanos(run.limitNs()));
    List<BoundCall> calls =
        run.steps.stream().flatMap(step -> step.calls().stream()).map(registrations::bind).toList();
    return CompletableFuture.allOf(
        IntStream.range(0, nRanks)
            .filter(peer -> peer != rank && concerns(calls, peer))
            .mapToObj(peer -> compare(number, calls, peer, deadline))
            .toArray(CompletableFuture<?>[]::new));
  }

  private static boolean concerns(List<BoundCall> calls, int peer) {
    return calls.stream().anyMatch(call -> concerns(call.call(), peer));
  }

  private static boolean concerns(CollectiveCall call, int peer) {
    return call.collective().isByAll() || call.destination() == peer || call.source() == peer;
  }

  private CompletableFuture<Void> compare(
      long number, List<BoundCall> calls, int peer, Deadline deadline) {
    String mine = describe(calls, rank, peer, false);
    String expected = describe(calls, rank, peer, true);
    return communicator
        .exchange(peer, tag, mine.getBytes(StandardCharsets.UTF_8), deadline)
        .handle(
            (bytes, failure) -> {
              if (failure != null) {
                throw explain(FluxCclException.from(failure), number, mine, peer);
              }
              String theirs = new String(bytes, StandardCharsets.UTF_8);
              if (!theirs.equals(expected)) {
                throw mismatch(number, mine, theirs, peer);
              }
              return null;
            });
  }

  /** Returns the text that this rank sends a peer, or, mirrored, expects from the peer. */
  private static String describe(List<BoundCall> calls, int rank, int peer, boolean mirrored) {
    StringBuilder text = new StringBuilder();
    for (BoundCall bound : calls) {
      CollectiveCall call = bound.call();
      if (concerns(call, peer)) {
        long sends = call.sendBytes(rank, peer);
        long receives = call.receiveBytes(rank, peer);
        text.append(text.length() == 0 ? "" : "; then ").append(call.signature());
        if (!call.collective().isByAll() || call.collective() == Collective.ALL_TO_ALL_V) {
          text.append(" sending ").append(mirrored ? receives : sends);
          text.append(" bytes, receiving ").append(mirrored ? sends : receives);
        }
        text.append(registrations(bound));
      }
    }
    return text.toString();
  }

  /** Returns where the buffers are registered that {@link BoundCall#isRegistered} depends on. */
  private static String registrations(BoundCall bound) {
    CollectiveCall call = bound.call();
    if (!call.collective().isChosenByRegistration()) {
      return "";
    }
    String input = where(" input", bound, bound.inputRegistration(), call.input(), ALL_GATHER);
    String output =
        where(" output", bound, bound.outputRegistration(), call.output(), REDUCE_SCATTER);
    return (call.collective() == Collective.BROADCAST ? "" : input)
        + (call.collective() == Collective.REDUCE ? "" : output);
  }

  /**
   * Returns a text that is the same on every rank: in place, of where the first share begins.
   *
   * @param shared the collective of which the buffer is this rank's share in place
   */
  private static String where(
      String what, BoundCall bound, Registration in, DeviceBuffer buffer, Collective shared) {
    if (in == null) {
      return "";
    }
    boolean isShare = bound.call().collective() == shared && bound.isInPlace();
    long before = isShare ? bound.rank() * bound.call().strideBytes() : 0;
    long offset = buffer.address() - before - in.buffer().address();
    return what + " in registration " + in.id() + " at " + offset;
  }

  private FluxCclException explain(FluxCclException failure, long number, String mine, int peer) {
    if (!(failure instanceof Timeout)) {
      return failure;
    }
    String text =
        "%s calls %s, but rank %d calls nothing in time; do all ranks call the same operations?";
    int rank = failure.rank() == FluxCclException.NO_RANK ? peer : failure.rank();
    return Timeout.of(rank, text, where(number), mine, peer);
  }

  private FluxCclException mismatch(long number, String mine, String theirs, int peer) {
    if (theirs.isEmpty() || theirs.chars().anyMatch(c -> c < ' ')) {
      return TransportFailure.of(
          peer, "%s: rank %d sent a malformed text of its calls", where(number), peer);
    }
    return InvalidUsage.of(
        "%s calls %s, rank %d calls %s; all ranks must call the same operations in the same order",
        where(number), mine, peer, theirs);
  }

  private String where(long number) {
    return Text.of("collectives tag=%d, operation %d: rank %d", tag, number, rank);
  }
}
