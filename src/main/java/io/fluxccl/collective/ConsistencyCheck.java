package io.fluxccl.collective;

import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.Timeout;
import io.fluxccl.TransportFailure;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.device.DeviceBuffer;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.stream.IntStream;

/**
 * Ranks comparing what they are about to enqueue: checked mode. Each tells each peer what it calls,
 * with what it would send there and expects from there. Whoever finds a difference enqueues
 * nothing. All ranks find one in what must be the same on all of them, because everybody compares
 * with everybody. One in what two ranks send each other only these two find: a third that agrees
 * with both enqueues, and waits for them until its time limit.
 */
final class ConsistencyCheck {
  private final Communicator communicator;
  private final RankTopology topology;
  private final int tag;

  ConsistencyCheck(Communicator communicator, RankTopology topology, int tag) {
    this.communicator = communicator;
    this.topology = topology;
    this.tag = tag;
  }

  /**
   * Compares. Called in the same order on all ranks.
   *
   * @param number of the run on this lane, from 1
   * @param calls in the order in which they are to be enqueued, bound to their registrations
   * @param deadline by when the peers must have come
   * @return completes when all agree; with {@link InvalidUsage} that tells the difference, or
   *     {@link Timeout} naming a rank that did not come
   */
  CompletableFuture<Void> reach(long number, List<BoundCall> calls, Deadline deadline) {
    CompletableFuture<?>[] comparisons =
        IntStream.range(0, topology.nRanks())
            .filter(peer -> peer != topology.rank() && concerns(calls, peer))
            .mapToObj(peer -> compare(number, calls, peer, deadline))
            .toArray(CompletableFuture<?>[]::new);
    return CompletableFuture.allOf(comparisons);
  }

  private static boolean concerns(List<BoundCall> calls, int peer) {
    return calls.stream().anyMatch(call -> concerns(call.call(), peer));
  }

  private static boolean concerns(CollectiveCall call, int peer) {
    return call.collective().isByAll() || call.destination() == peer || call.source() == peer;
  }

  private CompletableFuture<Void> compare(
      long number, List<BoundCall> calls, int peer, Deadline deadline) {
    String mine = tell(calls, topology.rank(), peer, false);
    String expected = tell(calls, topology.rank(), peer, true);
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

  /** What this rank tells a peer, or, mirrored, what it expects to be told. */
  private static String tell(List<BoundCall> calls, int rank, int peer, boolean mirrored) {
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

  /** Where the buffers are registered that {@link BoundCall#isRegistered} looks at. */
  private static String registrations(BoundCall bound) {
    Collective collective = bound.call().collective();
    if (!collective.isChosenByRegistration()) {
      return "";
    }
    return (collective == Collective.BROADCAST ? "" : inputOf(bound))
        + (collective == Collective.REDUCE ? "" : outputOf(bound));
  }

  private static String inputOf(BoundCall bound) {
    boolean isShare = bound.call().collective() == Collective.ALL_GATHER;
    return where(" input", bound, bound.inputRegistration(), bound.call().input(), isShare);
  }

  private static String outputOf(BoundCall bound) {
    boolean isShare = bound.call().collective() == Collective.REDUCE_SCATTER;
    return where(" output", bound, bound.outputRegistration(), bound.call().output(), isShare);
  }

  /** In place, a share lies behind those of the ranks before: what tells is where these begin. */
  private static String where(
      String what,
      BoundCall bound,
      Registration registration,
      DeviceBuffer buffer,
      boolean isShare) {
    if (registration == null) {
      return "";
    }
    long before = isShare && bound.isInPlace() ? bound.rank() * bound.call().strideBytes() : 0;
    long offset = buffer.address() - before - registration.buffer().address();
    return what + " in registration " + registration.id() + " at " + offset;
  }

  private FluxCclException explain(FluxCclException failure, long number, String mine, int peer) {
    if (!(failure instanceof Timeout)) {
      return failure;
    }
    return new Timeout(
        failure.rank() == FluxCclException.NO_RANK ? peer : failure.rank(),
        where(number)
            + " calls "
            + mine
            + ", but rank "
            + peer
            + " calls nothing in time; do all ranks call the same operations?");
  }

  private FluxCclException mismatch(long number, String mine, String theirs, int peer) {
    if (theirs.isEmpty() || theirs.chars().anyMatch(c -> c < ' ')) {
      return new TransportFailure(
          peer, where(number) + ": rank " + peer + " told something that is no call");
    }
    return new InvalidUsage(
        where(number)
            + " calls "
            + mine
            + ", rank "
            + peer
            + " calls "
            + theirs
            + "; all ranks must call the same operations in the same order");
  }

  private String where(long number) {
    return "collectives tag=" + tag + ", operation " + number + ": rank " + topology.rank();
  }
}
