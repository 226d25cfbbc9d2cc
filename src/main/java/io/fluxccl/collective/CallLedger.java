// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.Deadline;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.concurrent.Closing;
import io.fluxccl.concurrent.UseCount;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceKind;
import io.fluxccl.device.host.HostMemory;
import io.fluxccl.transport.RegisteredMemory;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.TransportFlags;
import java.util.concurrent.CompletableFuture;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The hashes of the latest calls of each rank on a GPU, in memory of the host that the ranks of the
 * host map. A rank publishes a call before it launches the kernel, and compares those of the others
 * before it reports a call as complete. As each hash covers all calls before it, one comparison is
 * enough for all of them.
 *
 * <pre>
 *   row        a ring of {@value #CALLS} collectives, then for each rank one of {@value CallComparison.History#SENT}
 *              messages to that rank
 *   ring of n  [0, 8)     number of calls; stored last, with release
 *              [64, ...)  hash of call i at i % n
 * </pre>
 */
final class CallLedger implements AutoCloseable {
  /** The most collectives by which two ranks may be apart and still be compared. */
  static final int CALLS = 4096;

  private static final Logger LOG = LoggerFactory.getLogger(CallLedger.class);
  private static final int HASHES = 64;
  private static final long PAIRS = ringBytes(CALLS);
  private static final int NOBODY = -1;

  private final int rank;
  private final long own;

  /** Addresses of the rows of all ranks; 0 of ranks of other hosts. */
  private final long[] rows;

  /** Held by the lane, and by each comparison while it reads other rows. */
  private final UseCount use;

  private CallLedger(DeviceBuffer buffer, RegisteredMemory mine, RegisteredMemory[] all) {
    this.rank = mine.rank();
    this.own = buffer.address();
    this.rows = new long[all.length];
    for (int peer = 0; peer < rows.length; peer++) {
      rows[peer] = peer != rank && all[peer].isMapped() ? all[peer].address() : 0;
    }
    this.use = new UseCount(() -> Closing.all(() -> Closing.all(all), buffer));
  }

  /**
   * Opens the ledger of a lane, together with all ranks.
   *
   * @return the ledger; null on the host device, whose messages carry signatures, and if ranks
   *     can't share memory of the host
   */
  static CompletableFuture<CallLedger> open(PeerConnections peers, Deadline deadline) {
    RankTopology topology = peers.topology();
    if (topology.kind() == DeviceKind.HOST || topology.mostRanksPerHost() == 1) {
      return CompletableFuture.completedFuture(null);
    }
    Communicator communicator = peers.communicator();
    DeviceBuffer[] buffer = new DeviceBuffer[1];
    RegisteredMemory[] mine = new RegisteredMemory[1];
    return communicator
        .exchangeMemory(
            peers.options().tag(),
            () -> {
              // Memory of zeros: all rings are empty.
              buffer[0] = communicator.hostDevice().allocate(pair(topology.nRanks()));
              mine[0] = communicator.registerMemory(buffer[0], TransportFlags.of(Transport.SHM));
              return mine[0];
            },
            deadline)
        .handle(
            (all, failure) -> {
              if (failure == null) {
                return new CallLedger(buffer[0], mine[0], all);
              }
              Closing.all(mine[0], buffer[0]);
              LOG.warn(
                  "rank {} compares collectives later: ranks of its host can't share memory: {}",
                  peers.rank(),
                  failure.getMessage());
              return null;
            });
  }

  private static long ringBytes(int calls) {
    return HASHES + (long) calls * Long.BYTES;
  }

  /** Returns where the ring of messages to a rank begins. */
  private static long pair(int to) {
    return PAIRS + to * ringBytes(CallComparison.History.SENT);
  }

  /** Publishes a collective; under the lane's lock, before it is launched. */
  void publish(long number, long hash) {
    put(own, CALLS, number, hash);
  }

  /** Publishes a message to a peer, likewise. */
  void publishSent(int peer, long number, long hash) {
    put(own + pair(peer), CallComparison.History.SENT, number, hash);
  }

  private static void put(long ring, int calls, long number, long hash) {
    HostMemory.putLongOpaque(hashAt(ring, calls, number), hash);
    // Pairs with the acquire in has().
    HostMemory.putLongRelease(ring, number);
  }

  private static long hashAt(long ring, int calls, long number) {
    return ring + HASHES + number % calls * Long.BYTES;
  }

  /** Returns whether a ring has a call: it is published, and not overwritten. */
  private static boolean has(long ring, int calls, long number) {
    // Pairs with the release in put().
    long published = HostMemory.getLongAcquire(ring);
    return published >= number && published < number + calls - 1;
  }

  /**
   * Returns a rank of this host whose collectives until a number differ from this rank's, or -1. A
   * rank that has not published the collective yet has sent no data of it.
   */
  int differing(long number) {
    if (number == 0 || !use.tryRetain()) {
      return NOBODY;
    }
    try {
      long hash = HostMemory.getLongOpaque(hashAt(own, CALLS, number));
      for (int peer = 0; peer < rows.length; peer++) {
        if (rows[peer] != 0
            && differs(rows[peer], CALLS, number, hash)
            && has(own, CALLS, number)) {
          return peer;
        }
      }
      return NOBODY;
    } finally {
      use.release();
    }
  }

  /** Returns whether what a peer has sent differs from what this rank has received from it. */
  boolean differs(int peer, CallComparison.History received) {
    if (rows[peer] == 0 || !use.tryRetain()) {
      return false;
    }
    try {
      long ring = rows[peer] + pair(rank);
      // Pairs with the release in put().
      long number = Math.min(HostMemory.getLongAcquire(ring), received.last());
      long hash = received.hash(number);
      return number > 0
          && differs(ring, CallComparison.History.SENT, number, hash)
          && received.last() < number + CallComparison.History.SENT - 1;
    } finally {
      use.release();
    }
  }

  private static boolean differs(long ring, int calls, long number, long hash) {
    long at = hashAt(ring, calls, number);
    // Most hashes are equal. A different one counts only if its slot holds this number before and
    // after.
    return HostMemory.getLongOpaque(at) != hash
        && has(ring, calls, number)
        && HostMemory.getLongOpaque(at) != hash
        && has(ring, calls, number);
  }

  @Override
  public void close() {
    use.release();
  }
}
