package io.fluxccl.collective;

import io.fluxccl.Deadline;
import io.fluxccl.RemoteFailure;
import io.fluxccl.TransportFailure;
import io.fluxccl.communicator.Communicator;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ThreadLocalRandom;
import java.util.function.IntConsumer;
import java.util.stream.IntStream;

/**
 * Ranks telling each other, when they close a lane, how many collectives of all ranks they took
 * part in: whoever waits for one more then learns at once that it will not come, over whichever
 * transport it waits.
 *
 * <p>Each lane has a number on each rank, which ranks exchange at the start and say again at the
 * end: a farewell to an earlier lane of the same tag is not taken for this one's.
 *
 * <pre>
 *   greeting = int64 lane          farewell = int64 lane, int64 collectives; little-endian
 * </pre>
 */
final class LeaveNotices {
  /** Nobody says when a lane will be closed. */
  private static final Duration EVER = Duration.ofDays(3650);

  private static final Duration SOON = Duration.ofSeconds(5);

  /** Who has left after how many collectives; the fewest of all. */
  private record Left(int peer, long rounds) {}

  private final Communicator communicator;
  private final int tag;
  private final long lane;
  private final long[] lanes;
  // Guarded by this, as what is heard.
  private final CompletableFuture<?>[] listening;
  private boolean stopped;
  private volatile Left left = new Left(-1, Long.MAX_VALUE);

  private LeaveNotices(Communicator communicator, int tag) {
    this.communicator = communicator;
    this.tag = tag;
    this.lane = ThreadLocalRandom.current().nextLong();
    this.lanes = new long[communicator.bootstrap().nRanks()];
    this.listening = new CompletableFuture<?>[lanes.length];
  }

  /**
   * Meets all ranks.
   *
   * @return completes when all have come here, which they do when they have prepared the lane
   */
  static CompletableFuture<LeaveNotices> meetAll(
      Communicator communicator, int tag, Deadline deadline) {
    LeaveNotices leaveNotices = new LeaveNotices(communicator, tag);
    byte[] mine = leaveNotices.message(Long.BYTES).putLong(leaveNotices.lane).array();
    CompletableFuture<?>[] greetings =
        leaveNotices
            .peers()
            .mapToObj(
                peer ->
                    communicator
                        .exchange(peer, tag, mine, deadline)
                        .thenAccept(theirs -> leaveNotices.met(peer, theirs)))
            .toArray(CompletableFuture<?>[]::new);
    return CompletableFuture.allOf(greetings).thenApply(met -> leaveNotices);
  }

  private IntStream peers() {
    int rank = communicator.bootstrap().rank();
    return IntStream.range(0, lanes.length).filter(peer -> peer != rank);
  }

  private ByteBuffer message(int bytes) {
    return ByteBuffer.allocate(bytes).order(ByteOrder.LITTLE_ENDIAN);
  }

  private void met(int peer, byte[] bytes) {
    if (bytes.length != Long.BYTES) {
      throw new TransportFailure(
          peer, "rank " + peer + " told " + bytes.length + " bytes that are no lane's number");
    }
    lanes[peer] = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN).getLong();
  }

  /**
   * Listens until {@link #stop}, or until the communicator ends.
   *
   * @param heard called, on any thread, with a rank when that has left; {@link #missing} knows it
   *     then
   */
  void listen(IntConsumer heard) {
    peers().forEach(peer -> listen(peer, heard));
  }

  private void listen(int peer, IntConsumer heard) {
    CompletableFuture<byte[]> notice;
    synchronized (this) {
      if (stopped) {
        return;
      }
      notice = communicator.recvNotice(peer, tag, Deadline.after(EVER));
      listening[peer] = notice;
    }
    // It fails only when this lane, the communicator or the peer's bootstrap has ended: no farewell
    // matters, or none comes, any more.
    notice.thenAccept(
        bytes -> {
          hear(peer, bytes, heard);
          // A lane that was closed may yet end early, with its communicator.
          listen(peer, heard);
        });
  }

  private void hear(int peer, byte[] bytes, IntConsumer heard) {
    ByteBuffer in = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN);
    if (bytes.length != 2 * Long.BYTES) {
      communicator.abort(
          new TransportFailure(peer, "rank " + peer + " said a malformed farewell, tag=" + tag));
    } else if (in.getLong() == lanes[peer]) {
      left(peer, in.getLong());
      heard.accept(peer);
    }
  }

  /** Listens no longer: this lane has nothing in flight and will not. */
  synchronized void stop() {
    stopped = true;
    for (CompletableFuture<?> notice : listening) {
      if (notice != null) {
        notice.cancel(false);
      }
    }
  }

  private synchronized void left(int peer, long rounds) {
    if (rounds < left.rounds()) {
      left = new Left(peer, rounds);
    }
  }

  /**
   * Tells all ranks that this one leaves. Waits for nothing: who can't be told any more is gone
   * itself.
   *
   * @param rounds how many collectives of all ranks it has taken part in, or will, as they are
   *     enqueued
   */
  void tell(long rounds) {
    byte[] farewell = message(2 * Long.BYTES).putLong(lane).putLong(rounds).array();
    peers().forEach(peer -> communicator.sendNotice(peer, tag, farewell, Deadline.after(SOON)));
  }

  /**
   * Whether a rank is missing from a collective. Allocates nothing when none is.
   *
   * @param round the number of the collective on this lane, from 1
   * @param what it is; asked for a text when there is something to say
   * @return who has left and will not take part, or null
   */
  RemoteFailure missing(long round, Object what) {
    Left known = left;
    if (round <= known.rounds()) {
      return null;
    }
    return new RemoteFailure(
        known.peer(),
        what
            + " on rank "
            + communicator.bootstrap().rank()
            + ": rank "
            + known.peer()
            + " left after "
            + known.rounds()
            + " collectives of tag "
            + tag
            + ", this is number "
            + round
            + "; let every rank enqueue the same collectives before it closes");
  }
}
