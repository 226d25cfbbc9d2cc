// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import io.fluxccl.Experimental;
import io.fluxccl.FluxCclException;
import java.net.InetSocketAddress;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CompletableFuture;

/**
 * A process's place in one generation of a job, as a {@link Meeting} assigned it. Join it by {@link
 * TcpBootstrap#initialize(Membership)}. Immutable.
 */
@Experimental
public final class Membership {
  /** The previous rank of a process that was in no earlier generation. */
  public static final int NEWCOMER = -1;

  private final long generation;
  private final int rank;
  private final List<Integer> previousRanks;
  private final SessionKey key;
  private final InetSocketAddress root;

  /** Completes when a member dies, or when the rendezvous loses its host. */
  private final CompletableFuture<FluxCclException> broken = new CompletableFuture<>();

  /** Completes when processes wait for the next generation, and this one has free ranks. */
  private final CompletableFuture<Void> newcomers = new CompletableFuture<>();

  Membership(
      long generation,
      int rank,
      List<Integer> previousRanks,
      SessionKey key,
      InetSocketAddress root) {
    this.generation = generation;
    this.rank = rank;
    this.previousRanks = List.copyOf(previousRanks);
    this.key = key;
    this.root = root;
  }

  /**
   * Returns the place of a rank in a job that no rendezvous has formed: to attend the first one.
   *
   * @param job initialized
   * @param generation the number that the job has
   */
  public static Membership of(TcpBootstrap job, long generation) {
    return new Membership(
        generation,
        job.rank(),
        Collections.nCopies(job.nRanks(), NEWCOMER),
        job.jobKey(),
        job.root());
  }

  /** Returns the generation's number, from 1. */
  public long generation() {
    return generation;
  }

  /** Returns this process's rank in the generation. */
  public int rank() {
    return rank;
  }

  /** Returns how many ranks the generation has. */
  public int nRanks() {
    return previousRanks.size();
  }

  /**
   * Returns, for each rank, the rank of the same process in the generation before, or {@link
   * #NEWCOMER}.
   */
  public List<Integer> previousRanks() {
    return previousRanks;
  }

  /**
   * Returns a new future that completes, on the bootstrap's thread, when processes wait for the
   * next generation while this one has fewer ranks than it may.
   */
  public CompletableFuture<Void> newcomers() {
    return newcomers.copy();
  }

  void newcomersWait() {
    newcomers.complete(null);
  }

  CompletableFuture<FluxCclException> broken() {
    return broken;
  }

  /** Returns where the members register; called once, on the event loop. */
  Rendezvous rendezvous() {
    BootstrapRoot hosted = MeetingHost.rootAt(root);
    if (hosted != null) {
      hosted.use();
    }
    return new Rendezvous(key, null, root, hosted, FluxCclException.NO_RANK);
  }

  @Override
  public String toString() {
    return "rank " + rank + " of " + nRanks() + " in generation " + generation;
  }
}
