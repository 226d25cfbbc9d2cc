// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.Aborted;
import io.fluxccl.FluxCclException;
import io.fluxccl.communicator.Communicator;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.function.Supplier;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/**
 * The lanes that a run uses in addition to the one that executes it: steps of {@link
 * Pipeline#then(Collectives, CollectiveCall)}. Their locks are taken in the order of the lanes'
 * numbers, so that two such runs can't wait for each other. Their communicators belong to the same
 * job, so they fail together. One object for each run.
 */
final class OtherLanes {
  /**
   * The last run of another lane that has collectives of a lane.
   *
   * @param lastRound the number of the last of them on the lane
   */
  record Use(Run run, long lastRound) {
    static final Use NONE = new Use(null, 0);

    boolean isInFlight() {
      return run != null && !run.isOver();
    }
  }

  private final Lane thisLane;
  private final List<Lane> lanes;

  /** The other lanes and this lane, sorted by number (the lock order). */
  private final List<Lane> locked;

  /** The number of this run's collectives of all ranks, by lane; then the round of the last one. */
  private final int[] rounds;

  private final long[] lastRounds;

  private OtherLanes(Lane thisLane, List<Step.CollectOn> steps) {
    this.thisLane = thisLane;
    this.lanes = steps.stream().map(Step.CollectOn::other).distinct().toList();
    this.locked = new ArrayList<>(lanes);
    locked.add(thisLane);
    locked.sort(Comparator.comparingLong(lane -> lane.number));
    this.rounds = new int[lanes.size()];
    this.lastRounds = new long[lanes.size()];
    for (Step.CollectOn step : steps) {
      rounds[lanes.indexOf(step.other())] += step.what().collective().isByAll() ? 1 : 0;
    }
  }

  /** Returns the other lanes of steps, or null if there is none. */
  static OtherLanes of(Lane thisLane, List<Step> steps) {
    return areUsed(steps)
        ? new OtherLanes(
            thisLane, steps.stream().flatMap(step -> step.onOtherLanes().stream()).toList())
        : null;
  }

  /** Returns whether steps use other lanes. Allocates nothing. */
  static boolean areUsed(List<Step> steps) {
    for (int i = 0; i < steps.size(); i++) {
      if (!steps.get(i).onOtherLanes().isEmpty()) {
        return true;
      }
    }
    return false;
  }

  /** Returns which lanes steps use, for messages; empty if only the own one. */
  static String describe(Lane thisLane, List<Step> steps) {
    OtherLanes others = of(thisLane, steps);
    return others == null
        ? ""
        : Stream.concat(Stream.of(thisLane), others.lanes.stream())
            .map(
                lane ->
                    (lane.communicator.bootstrap().name() + " tag=" + lane.options.tag()).strip())
            .collect(Collectors.joining(" and ", " of ", " (in this order on every rank?)"));
  }

  /** Executes something with the locks of all lanes. */
  <T> T locked(Supplier<T> body) {
    return locked(0, body);
  }

  private <T> T locked(int index, Supplier<T> body) {
    if (index == locked.size()) {
      return body.get();
    }
    synchronized (locked.get(index).enqueueing) {
      return locked(index + 1, body);
    }
  }

  /** Counts the collectives, before they are enqueued; with all locks. */
  void begin(Run run) {
    for (int i = 0; i < lanes.size(); i++) {
      lastRounds[i] = lanes.get(i).rounds + rounds[i];
      lanes.get(i).refuseIfMissing(run, lastRounds[i]);
    }
    for (int i = 0; i < lanes.size(); i++) {
      lanes.get(i).rounds = lastRounds[i];
      lanes.get(i).use.set(new Use(run, lastRounds[i]));
    }
  }

  /**
   * Returns the communicator that knows which rank a run waits for: the own one, or else another.
   */
  Communicator waiting() {
    return Stream.concat(Stream.of(thisLane), lanes.stream())
        .map(lane -> lane.communicator)
        .filter(OtherLanes::isWaiting)
        .findFirst()
        .orElse(thisLane.communicator);
  }

  private static boolean isWaiting(Communicator communicator) {
    return communicator.bootstrap().unresponsiveRank().isPresent()
        || communicator.abortFlag().waitingFor() >= 0;
  }

  /** Counts the collectives as done, and removes the run from the other lanes. */
  void end(Run run) {
    for (int i = 0; i < lanes.size(); i++) {
      Lane lane = lanes.get(i);
      lane.roundsDone.accumulateAndGet(lastRounds[i], Math::max);
      Use last = lane.use.get();
      if (last.run() == run) {
        lane.use.compareAndSet(last, Use.NONE); // unless a later run uses the lane by now
      }
    }
  }

  /** Aborts the communicator of each other lane whose kernels have found a fault. */
  void abortAtFaults() {
    for (Lane lane : lanes) {
      FluxCclException fault = lane.algorithms.fault();
      if (fault != null && lane.communicator.failure() == null) {
        lane.communicator.abort(fault);
      }
    }
  }

  /** Returns whether one of the other lanes' communicators has failed or was closed. */
  boolean haveFailed() {
    return lanes.stream().anyMatch(lane -> lane.communicator.failure() != null);
  }

  /** Returns whether ranks' collectives differ on one of the other lanes, which then fails. */
  boolean areRefused() {
    for (int i = 0; i < lanes.size(); i++) {
      if (lanes.get(i).comparison.refuses(lastRounds[i])) {
        return true;
      }
    }
    return false;
  }

  /** Fails a run after another lane has failed. That failure ends the job, and so this lane. */
  void fail(Run run) {
    for (Lane lane : lanes) {
      if (lane.communicator.isClosed()) {
        String text = "%s: the communicator of another lane that it uses was closed";
        thisLane.communicator.abort(Aborted.of(FluxCclException.NO_RANK, text, run));
      }
    }
    thisLane.communicator.failed().thenAccept(run::fail);
  }
}
