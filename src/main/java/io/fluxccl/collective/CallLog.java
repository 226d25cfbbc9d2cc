// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.DataType;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.trace.FlightRecorder;
import io.fluxccl.trace.Outcome;
import io.fluxccl.trace.Snapshot;
import java.util.List;
import java.util.function.Supplier;

/**
 * Records the start and the end of each run of a lane in the flight recorder. Allocates nothing and
 * takes no lock, unless it keeps the device's times too.
 */
final class CallLog implements AutoCloseable {
  private static final Collective[] COLLECTIVES = Collective.values();

  private final FlightRecorder recorder;
  private final DeviceStream stream;
  private final AlgorithmSelector algorithms;
  private final int tag;
  private final Supplier<Snapshot> progress;

  /** Null unless the recorder wants the device's times, and the stream has a clock. */
  private final CallTimes times;

  private final int nRanks;
  private final int[] kinds = new int[COLLECTIVES.length];
  private final int[] types = new int[DataType.values().length];
  private final int pipeline;
  private final int captured;

  /**
   * Adds a lane to the recorder.
   *
   * @param lane opened by all ranks
   */
  CallLog(Lane lane) {
    this.stream = lane.stream;
    this.recorder = lane.communicator.recorder();
    this.algorithms = lane.algorithms;
    this.nRanks = lane.peers.topology().nRanks();
    for (Collective each : COLLECTIVES) {
      kinds[each.ordinal()] = recorder.number(each.label());
    }
    for (DataType each : DataType.values()) {
      types[each.ordinal()] = recorder.number(each.label());
    }
    this.pipeline = recorder.number("pipeline");
    this.captured = recorder.number("captured pipeline");
    this.tag = lane.options.tag();
    this.progress =
        () ->
            Snapshot.EMPTY
                .with("tag", tag)
                .with("enqueued", lane.rounds)
                .with("done", lane.roundsDone.get())
                .with("in_flight", lane.inFlight.runs.size());
    this.times =
        recorder.wantsDeviceTimes()
            ? stream.clock(2 * CallTimes.MOST).map(CallTimes::new).orElse(null)
            : null;
    algorithms.number(recorder);
    recorder.add(progress);
  }

  /** Called before the steps of a run are enqueued; under the lane's lock. */
  void begin(Run run) {
    // A call that the stream's owner captures runs later, as often as the owner likes.
    if (times != null && !stream.isCapturing()) {
      times.begin(run);
    }
  }

  /**
   * Records a run whose steps were just enqueued; under the lane's lock.
   *
   * @param before the number of the last collective before it
   */
  void enqueued(Run run, List<Step> steps, long before) {
    if (!recorder.isOn()) {
      return;
    }
    int kind = pipeline;
    int type = 0;
    long bytes = 0;
    for (int i = 0; i < steps.size(); i++) {
      bytes += steps.get(i).bytes(nRanks);
    }
    if (steps.size() == 1 && steps.get(0) instanceof Step.Collect one) {
      kind = kinds[one.what().collective().ordinal()];
      type = one.what().type() == null ? 0 : types[one.what().type().ordinal()];
    } else if (!steps.isEmpty() && steps.get(0) instanceof CapturedPipeline.Replay) {
      kind = captured;
    }
    long first = run.lastRound > before ? before + 1 : 0;
    long last = first == 0 ? 0 : run.lastRound;
    int algorithm = kind == captured ? 0 : algorithms.takeLastUsed();
    if (times != null) {
      times.enqueued(run);
    }
    run.recorded = recorder.enqueued(tag, kind, type, algorithm, bytes, first, last);
  }

  /** Records the end of a run. Any thread. */
  void ended(Run run, Outcome outcome) {
    if (times != null) {
      times.ended(run, outcome);
    }
    recorder.ended(run.recorded, outcome, run.begunNs, run.endedNs);
  }

  /** Removes the lane from the recorder. */
  @Override
  public void close() {
    recorder.remove(progress);
    if (times != null) {
      times.close();
    }
  }
}
