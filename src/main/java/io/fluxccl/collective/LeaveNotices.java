// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.Deadline;
import io.fluxccl.RemoteFailure;
import io.fluxccl.Text;
import io.fluxccl.TransportFailure;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.wire.WireReader;
import io.fluxccl.wire.WireWriter;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.function.BiConsumer;
import java.util.function.IntConsumer;
import java.util.function.LongSupplier;
import java.util.stream.IntStream;

/**
 * Notices that ranks send each other when they close a lane, with the number of collectives of all
 * ranks that they took part in. So a rank that waits for another collective detects at once that it
 * can't complete, on every transport. They also carry the messages of {@link CallComparison}.
 *
 * <p>A lane has a number on each rank, which ranks exchange at its opening and repeat in a notice.
 * So a notice of an earlier lane of the same tag is not taken for one of this lane.
 *
 * <pre>notice = int64 lane, then uint8 0, int64 collectives; or uint8 1, calls</pre>
 */
final class LeaveNotices {
  private static final Duration SOON = Duration.ofSeconds(5);
  private static final int LEAVES = 0;
  private static final int CALLS = 1;

  /** The peer that left after the fewest collectives. */
  private record Left(int peer, long rounds) {}

  private final Communicator communicator;
  private final int tag;
  private final long[] lanes;
  // Guarded by this, as is writing to left.
  private final CompletableFuture<?>[] listening;
  private boolean stopped;
  private Runnable endOfListening = () -> {};
  private volatile Left left = new Left(-1, Long.MAX_VALUE);

  /**
   * Creates the notices of a lane.
   *
   * @param lanes the lane's number on each rank
   */
  LeaveNotices(Communicator communicator, int tag, long[] lanes) {
    this.communicator = communicator;
    this.tag = tag;
    this.lanes = lanes;
    this.listening = new CompletableFuture<?>[lanes.length];
  }

  private int rank() {
    return communicator.bootstrap().rank();
  }

  private IntStream peers() {
    return IntStream.range(0, lanes.length).filter(peer -> peer != rank());
  }

  /**
   * Listens until {@link #stop}, or until the communicator ends.
   *
   * @param onLeave called, on any thread, with a peer that has left; {@link #missing} takes that
   *     peer into account by then
   * @param onCalls called, on any thread, with a peer and its message for {@link CallComparison}
   * @param rounds returns the number of collectives of all ranks that this rank has enqueued, for
   *     the notice when its group begins to leave; the largest number if it may enqueue more
   */
  void listen(IntConsumer onLeave, BiConsumer<Integer, WireReader> onCalls, LongSupplier rounds) {
    peers().forEach(peer -> listen(peer, onLeave, onCalls));
    endOfListening = communicator.whenLeaving(peer -> send(peer, leaving(rounds.getAsLong())));
  }

  private void listen(int peer, IntConsumer onLeave, BiConsumer<Integer, WireReader> onCalls) {
    CompletableFuture<byte[]> notice;
    synchronized (this) {
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
          received(peer, bytes, onLeave, onCalls);
          // A closed lane may end after fewer collectives than announced, with its communicator.
          listen(peer, onLeave, onCalls);
        });
  }

  private void received(
      int peer, byte[] bytes, IntConsumer onLeave, BiConsumer<Integer, WireReader> onCalls) {
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
      long lane = in.int64("lane");
      int kind = in.uint8("kind");
      in.check(kind == LEAVES || kind == CALLS, "kind", Integer.toString(kind));
      if (kind == CALLS && lane == lanes[peer]) {
        onCalls.accept(peer, in);
      } else if (kind == LEAVES) {
        long rounds = in.int64("collectives", 0, Long.MAX_VALUE);
        in.end();
        if (lane == lanes[peer]) {
          left(peer, rounds);
          onLeave.accept(peer);
        }
      }
    } catch (TransportFailure malformed) {
      communicator.abort(malformed);
    }
  }

  private synchronized void left(int peer, long rounds) {
    if (rounds < left.rounds()) {
      left = new Left(peer, rounds);
    }
  }

  /** Stops listening: this lane has nothing in flight and gets no more. */
  synchronized void stop() {
    stopped = true;
    endOfListening.run();
    for (CompletableFuture<?> notice : listening) {
      if (notice != null) {
        notice.cancel(false);
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
  void send(long rounds) {
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

  /** Sends a peer a message of {@link CallComparison}, until {@link #stop}. Waits for nothing. */
  void sendCalls(int peer, byte[] calls) {
    synchronized (this) {
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
}
