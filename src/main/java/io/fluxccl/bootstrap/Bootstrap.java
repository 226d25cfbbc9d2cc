package io.fluxccl.bootstrap;

import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import java.net.InetAddress;
import java.util.List;
import java.util.OptionalInt;
import java.util.concurrent.CompletableFuture;

/**
 * The network of a job's control messages. All operations are futures; none blocks a thread; each
 * ends by its deadline, with {@link io.fluxccl.Timeout} naming the rank that did not answer, or at
 * once with {@link io.fluxccl.RemoteFailure} when that rank is gone.
 *
 * <p>Thread-safe. Collective operations (allGather, barrier, broadcast) must be called in the same
 * order on every rank. Futures complete on a thread of the bootstrap: hand long work on.
 */
public interface Bootstrap extends AutoCloseable {
  /** This rank, from 0. */
  int rank();

  /** How many ranks the job has. */
  int nRanks();

  /** How many ranks share this rank's host, itself included. */
  int nRanksPerNode();

  /** This rank's number among those of its host, in rank order, from 0. */
  int localRank();

  /**
   * The hash of a rank's host: equal for ranks that share memory.
   *
   * @param rank 0 to nRanks - 1
   * @return the hash
   */
  long hostHash(int rank);

  /**
   * The hash of a rank's process: equal for ranks of one JVM.
   *
   * @param rank 0 to nRanks - 1
   * @return the hash
   */
  long processHash(int rank);

  /** An IP address by which the other ranks reach this host. */
  InetAddress hostAddress();

  /**
   * Sends a message. Messages of one sender, receiver and tag arrive in order; other tags are
   * independent.
   *
   * @param peer to whom; may be this rank
   * @param tag any int; the receiver names the same
   * @param message not changed afterwards
   * @param deadline by when it must be handed to the network
   * @return completes when it is handed to the network
   */
  CompletableFuture<Void> send(int peer, int tag, byte[] message, Deadline deadline);

  /**
   * Receives the next message of a peer and tag, whether it came already or is still to come. A
   * rank that left in good order after sending can still be received from.
   *
   * @param peer from whom
   * @param tag as the sender named
   * @param deadline by when
   * @return the message
   */
  CompletableFuture<byte[]> recv(int peer, int tag, Deadline deadline);

  /**
   * Gathers one message of every rank at every rank. Messages may differ in length.
   *
   * @param mine this rank's
   * @param deadline by when
   * @return all, by rank
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

  /** Completes when every rank has called it. */
  CompletableFuture<Void> barrier(Deadline deadline);

  /**
   * A barrier of some ranks.
   *
   * @param ranks the same list on each of them, this rank among them, none twice
   * @param deadline by when
   * @return completes when each of them has called it
   */
  CompletableFuture<Void> groupBarrier(List<Integer> ranks, Deadline deadline);

  /**
   * Gives one rank's message to all.
   *
   * @param root whose
   * @param message the root's; ignored elsewhere and may be null there
   * @param deadline by when
   * @return the message, on every rank
   */
  CompletableFuture<byte[]> broadcast(int root, byte[] message, Deadline deadline);

  /**
   * A rank that is alive as far as is known but has answered no heartbeat for over a second; tells
   * whom to blame when something timed out.
   */
  OptionalInt unresponsiveRank();

  /**
   * Ends the job: every rank's {@link #failure()} completes with this reason. Only the first reason
   * counts. Does not wait.
   *
   * @param reason why; its kind, rank and message travel
   */
  void abort(FluxCclException reason);

  /**
   * Completes, normally, with the reason when a rank dies or any rank calls {@link #abort}; with an
   * {@link io.fluxccl.Aborted} when this bootstrap is closed first. A rank that leaves by {@link
   * #close()} is no failure.
   */
  CompletableFuture<FluxCclException> failure();

  /**
   * Leaves in good order: tells the others, then closes sockets and threads.
   *
   * @return completes when nothing is left
   */
  CompletableFuture<Void> closeAsync();

  /** {@link #closeAsync()}, waiting at most a few seconds for it. Idempotent. */
  @Override
  void close();
}
