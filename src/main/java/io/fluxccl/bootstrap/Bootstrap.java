// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.trace.JobDump;
import io.fluxccl.trace.Snapshot;
import java.net.InetAddress;
import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.concurrent.CompletableFuture;
import java.util.function.Consumer;
import java.util.function.Supplier;
import java.util.stream.IntStream;
import reactor.core.publisher.Flux;

/**
 * The network of a job's control messages. All operations return futures; none blocks a thread. An
 * operation fails with {@link io.fluxccl.Timeout} at its deadline, naming the rank that did not
 * answer, or at once with {@link io.fluxccl.RemoteFailure} if that rank has left or died.
 *
 * <p>Thread-safe. Collective operations (allGather, barrier, broadcast) must be called in the same
 * order on every rank. Futures complete on a thread of the bootstrap: run long work elsewhere.
 */
public interface Bootstrap extends AutoCloseable {
  /** Returns the job's name, for messages; empty if it has none. */
  default String name() {
    return "";
  }

  /** Returns the bootstrap of the whole job: this one, unless it is a sub-group. */
  default Bootstrap job() {
    return this;
  }

  /** Returns this rank, from 0. */
  int rank();

  /** Returns how many ranks the job has. */
  int nRanks();

  /** Returns how many ranks share this rank's host, itself included. */
  default int nRanksPerNode() {
    long mine = hostHash(rank());
    return (int) IntStream.range(0, nRanks()).filter(each -> hostHash(each) == mine).count();
  }

  /** Returns this rank's number among those of its host, in rank order, from 0. */
  default int localRank() {
    long mine = hostHash(rank());
    return (int) IntStream.range(0, rank()).filter(each -> hostHash(each) == mine).count();
  }

  /**
   * Returns the hash of a rank's host: equal for ranks that share memory.
   *
   * @param rank 0 to nRanks - 1
   * @return the hash
   */
  long hostHash(int rank);

  /**
   * Returns the hash of a rank's process: equal for ranks of one JVM.
   *
   * @param rank 0 to nRanks - 1
   * @return the hash
   */
  long processHash(int rank);

  /** Returns an IP address by which the other ranks reach this host. */
  InetAddress hostAddress();

  /**
   * Sends a message. Messages of one sender, receiver and tag arrive in order; other tags are
   * independent.
   *
   * @param peer the rank that receives it; may be this rank
   * @param tag any int; the receiver names the same
   * @param message not changed afterwards
   * @param deadline by when it must be handed to the network
   * @return completes when it is handed to the network
   */
  CompletableFuture<Void> send(int peer, int tag, byte[] message, Deadline deadline);

  /**
   * Receives the next message of a peer and tag, whether it has arrived already or arrives later.
   * The messages of a rank that left in good order can still be received.
   *
   * @param peer the rank that sends it
   * @param tag the sender's tag
   * @param deadline by when it must have arrived
   * @return the message
   */
  CompletableFuture<byte[]> recv(int peer, int tag, Deadline deadline);

  /**
   * Gathers one message of every rank at every rank. Messages may differ in length.
   *
   * @param mine this rank's message
   * @param deadline by when every rank must have called this
   * @return all messages, by rank
   */
  CompletableFuture<List<byte[]>> allGather(byte[] mine, Deadline deadline);

  /**
   * Exchanges one message of every rank with every other rank. Exchanges with different tags are
   * independent of each other and of {@link #allGather}: a rank may begin them in any order, and
   * several at once. Exchanges with the same tag match in the order of the calls.
   *
   * @param tag any int, the same on every rank
   * @param mine this rank's message; ranks may differ in length
   * @param deadline by when every rank must have called this
   * @return all messages, by rank
   */
  CompletableFuture<List<byte[]>> exchange(int tag, byte[] mine, Deadline deadline);

  /** Returns a future that completes when every rank has called this. */
  CompletableFuture<Void> barrier(Deadline deadline);

  /**
   * As {@link #barrier(Deadline)}, and reports the ranks that are late.
   *
   * @param missing called on the bootstrap's thread with the ranks that have not called this, as
   *     far as this rank knows, after some 50 ms and whenever that changes
   */
  CompletableFuture<Void> barrier(Deadline deadline, Consumer<List<Integer>> missing);

  /**
   * Waits for some ranks.
   *
   * @param ranks the same list on each of them, this rank among them, none twice
   * @param deadline by when
   * @return completes when each of them has called it
   */
  CompletableFuture<Void> groupBarrier(List<Integer> ranks, Deadline deadline);

  /**
   * Sends one rank's message to all.
   *
   * @param root the rank that sends
   * @param message the root's message; ignored elsewhere and may be null there
   * @param deadline by when
   * @return the message, on every rank
   */
  CompletableFuture<byte[]> broadcast(int root, byte[] message, Deadline deadline);

  /**
   * Forms sub-groups, as MPI_Comm_split does; several at once, with one exchange. Each is a
   * bootstrap of its own over the same connections: its ranks are numbered from 0, its messages and
   * collective operations are apart from those of all other groups.
   *
   * <p>If a sub-group fails, the job and all its groups fail, and vice versa. The {@link
   * #failure()} of a sub-group names the rank by its number in the sub-group, or {@link
   * FluxCclException#NO_RANK} if it has no such rank. Closing a sub-group closes only itself;
   * closing this bootstrap closes its sub-groups.
   *
   * @param splits one for each sub-group of this rank; every rank passes equally many, with the
   *     same names and sizes, and calls this in the same order among its splits
   * @param deadline by when every rank must have called this
   * @return by split, this rank's sub-group, or empty for a negative colour; the caller closes it.
   *     Fails with {@link io.fluxccl.InvalidUsage} on every rank if the ranks differ
   */
  CompletableFuture<List<Optional<Bootstrap>>> split(List<Split> splits, Deadline deadline);

  /** Returns the ranks that have answered no heartbeat for over a second and may live. */
  List<Integer> silentRanks();

  /** Returns the first of {@link #silentRanks}, which an operation that times out names. */
  default OptionalInt unresponsiveRank() {
    return silentRanks().stream().mapToInt(Integer::intValue).findFirst();
  }

  /**
   * Returns {@link #unresponsiveRank} at the moment, and again whenever it changes.
   *
   * @return a Flux without an end, signalled on this bootstrap's thread: subscribers must not block
   */
  Flux<OptionalInt> silence();

  /** Returns the number of a sub-group, the same on all its ranks; 0 for a whole job. */
  default long groupId() {
    return 0;
  }

  /** Returns the job's numbers of the ranks of a sub-group; empty for a whole job. */
  default List<Integer> jobRanks() {
    return List.of();
  }

  /**
   * Adds a group to this rank's snapshot, which answers dump requests.
   *
   * @param part returns the group's snapshot; called on this bootstrap's thread, so it must not
   *     block
   * @return removes the part
   */
  default Runnable report(Supplier<Snapshot> part) {
    return () -> {};
  }

  /**
   * Requests a snapshot from every rank of the job, each over a separate connection. Ranks answer
   * on their bootstrap's thread, even if their other threads are blocked. Works while this
   * bootstrap is open, also after the job has failed or the root has closed. Does not affect the
   * job.
   *
   * @param all whether with all calls that are kept; otherwise with those in flight and the last
   *     few
   * @param limit how long to wait for ranks that don't answer
   * @return the snapshots of all ranks
   */
  default CompletableFuture<JobDump> dump(boolean all, Duration limit) {
    return CompletableFuture.failedFuture(
        InvalidUsage.of("dump: %s supports no dumps", getClass().getSimpleName()));
  }

  /**
   * Fails the job: every rank's {@link #failure()} completes with this reason. Only the first
   * reason counts. Does not wait.
   *
   * @param reason why; its kind, rank and message are sent to the other ranks
   */
  void abort(FluxCclException reason);

  /**
   * Returns a new future that completes, normally, with the reason when a rank dies or any rank
   * calls {@link #abort}; with an {@link io.fluxccl.Aborted} when this bootstrap is closed first. A
   * rank that leaves by {@link #close()} is no failure.
   */
  CompletableFuture<FluxCclException> failure();

  /**
   * Leaves in good order: notifies the other ranks, then closes sockets and threads.
   *
   * @return completes when all is closed
   */
  CompletableFuture<Void> closeAsync();

  /** {@link #closeAsync()}, waiting at most a few seconds for it. Idempotent. */
  @Override
  void close();
}
