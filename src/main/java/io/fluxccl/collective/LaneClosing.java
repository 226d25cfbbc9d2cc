package io.fluxccl.collective;

import io.fluxccl.communicator.Communicator;
import io.fluxccl.concurrent.Closing;
import io.fluxccl.device.DeviceStream;
import java.util.List;
import java.util.concurrent.CompletableFuture;

/**
 * The steps in which a rank takes a lane apart once nothing enqueued uses it: recorded graphs go,
 * the families see off what peers may still send, and all is freed. After a failure no peer is
 * waited for.
 */
final class LaneClosing {
  private final Communicator communicator;
  private final PeerConnections peers;
  private final List<AlgorithmSet> sets;
  private final LeaveNotices leaveNotices;
  private final DeviceStream stream;
  private final InFlightTracker inFlight;
  private final CompletableFuture<Void> freed;

  /**
   * Of what a lane has.
   *
   * @param freed completed when all of it is freed, or can't be
   */
  LaneClosing(
      PeerConnections peers,
      List<AlgorithmSet> sets,
      LeaveNotices leaveNotices,
      DeviceStream stream,
      InFlightTracker inFlight,
      CompletableFuture<Void> freed) {
    this.communicator = peers.communicator();
    this.peers = peers;
    this.sets = sets;
    this.leaveNotices = leaveNotices;
    this.stream = stream;
    this.inFlight = inFlight;
    this.freed = freed;
  }

  /**
   * Begins behind the work enqueued so far; no more may come. Waits for nothing. Called once.
   *
   * @param captures those that are open
   */
  void begin(List<CapturedPipeline> captures) {
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
      // Not on the thread that learns of it: freeing may wait for what that thread does.
      drained.whenCompleteAsync((done, failure) -> free(), Lane.MAY_BLOCK);
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
      // What can't be closed keeps nothing else from it.
      Closing.all(
          () -> Closing.all(sets),
          communicator.failure() == null ? peers::leave : peers,
          leaveNotices::stop,
          stream,
          inFlight::close);
    } finally {
      freed.complete(null);
    }
  }
}
