// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.function.IntFunction;

/** A library that does collectives: this one, or the one that it is compared with. */
interface MeasuredLibrary {
  /** Returns the name for headers, for example {@code NCCL 2.28.9}. */
  String name();

  /** Returns whether the library can do a case; the same on every rank. */
  default boolean supports(PerfCase shape, BufferAliasing placement) {
    return true;
  }

  /**
   * Prepares calls on the rank's buffers. All ranks call it in the same order.
   *
   * @param shape the case
   * @param placement which buffers the calls use
   * @param length how many calls
   * @param graph whether to record the calls once and only replay them from then on
   * @return the calls; the caller closes them
   */
  PreparedCalls prepare(PerfCase shape, BufferAliasing placement, int length, boolean graph);

  /** A library that this one is compared with. */
  interface Peer extends AutoCloseable {
    /** Returns the ways to use it, equal on all ranks; each is measured, the fastest counts. */
    List<MeasuredLibrary> ways();

    /** Releases the library's communicator and streams. */
    @Override
    void close();
  }

  /**
   * Calls of one collective that are enqueued together, any number of times.
   *
   * @param enqueue see {@link #run}
   * @param release see {@link #close}
   */
  record PreparedCalls(IntFunction<CompletableFuture<Void>> enqueue, Runnable release)
      implements AutoCloseable {
    /** Calls that need no release. */
    PreparedCalls(IntFunction<CompletableFuture<Void>> enqueue) {
      this(enqueue, () -> {});
    }

    /**
     * Enqueues the calls and returns without waiting for them.
     *
     * @param times how often, 1 or more
     * @return completes when all calls are done; fails after the time limit, which fails the job
     *     too and names the late rank
     */
    CompletableFuture<Void> run(int times) {
      return enqueue.apply(times);
    }

    /** Releases what was prepared. No call is in flight. */
    @Override
    public void close() {
      release.run();
    }
  }
}
