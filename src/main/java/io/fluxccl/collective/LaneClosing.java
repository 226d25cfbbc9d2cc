// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.communicator.Communicator;
import io.fluxccl.concurrent.BlockingTasks;
import io.fluxccl.concurrent.Closing;
import io.fluxccl.concurrent.Lifecycle;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The end of a lane, once nothing enqueued uses it: its recorded graphs are closed, its families
 * drain what peers may still send, and its parts are freed. After a failure it waits for no peer.
 */
final class LaneClosing {
  private static final Logger LOG = LoggerFactory.getLogger(LaneClosing.class);

  private final Lifecycle lifecycle = new Lifecycle("lane");
  private final Communicator communicator;
  private final List<AlgorithmSet> sets;
  private final CompletableFuture<Void> freed;

  /**
   * Takes the parts of a lane.
   *
   * @param ledger null if there is none
   * @param stream closes the stream, if it is the lane's own
   * @param freed completed when all of them are freed, or can't be
   */
  LaneClosing(
      PeerConnections peers,
      List<AlgorithmSet> sets,
      LeaveNotices leaveNotices,
      AutoCloseable ledger,
      AutoCloseable stream,
      InFlightTracker inFlight,
      CallLog calls,
      CompletableFuture<Void> freed) {
    this.communicator = peers.communicator();
    this.sets = sets;
    this.freed = freed;
    // Closed in reverse order.
    lifecycle.own(inFlight::close);
    lifecycle.own(calls);
    lifecycle.own(stream);
    lifecycle.own(() -> Closing.all(ledger));
    lifecycle.own(leaveNotices::stop);
    lifecycle.own(() -> close(peers));
    lifecycle.own(() -> Closing.all(sets));
  }

  /** Returns whether the lane is closing or closed. */
  boolean hasBegun() {
    return lifecycle.isClosed();
  }

  /**
   * Begins to close the lane after the work enqueued so far; no more may be enqueued. Does not
   * block. Called once.
   *
   * @param captures the recorded pipelines that are open
   */
  void begin(List<CapturedPipeline> captures) {
    lifecycle.beginClose();
    // Kernels in flight use the peers' memory; after an abort they end within a bounded number of
    // polls.
    communicator.device().whenEnqueuedWorkIsDone(() -> end(captures));
  }

  private void end(List<CapturedPipeline> captures) {
    try {
      Closing.all(captures.stream().<AutoCloseable>map(captured -> captured::end).toList());
    } finally {
      if (communicator.failure() == null) {
        drain();
      } else {
        free();
      }
    }
  }

  private void drain() {
    CompletableFuture<Void> drained =
        CompletableFuture.allOf(
            sets.stream().map(LaneClosing::drain).toArray(CompletableFuture<?>[]::new));
    if (drained.isDone()) {
      free();
    } else {
      // Not on the thread that completes it: freeing may wait for that thread.
      drained.whenCompleteAsync((done, failure) -> logError(this::free), BlockingTasks.EXECUTOR);
    }
  }

  /** Runs a close action and logs its failure, because there is no caller to throw it to. */
  void logError(Runnable close) {
    try {
      close.run();
    } catch (RuntimeException | Error e) {
      LOG.warn(
          "rank {}: closing a lane failed; some of its resources were not released",
          communicator.bootstrap().rank(),
          e);
    }
  }

  private static CompletableFuture<Void> drain(AlgorithmSet set) {
    try {
      return set.drain();
    } catch (RuntimeException e) {
      return CompletableFuture.failedFuture(e);
    }
  }

  private void free() {
    try {
      lifecycle.closeChildren();
    } finally {
      freed.complete(null);
    }
  }

  /** Without a failure, connections stay open until the peers close theirs. */
  private void close(PeerConnections peers) {
    if (communicator.failure() == null) {
      peers.leave();
    } else {
      peers.close();
    }
  }
}
