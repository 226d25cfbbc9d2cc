// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.fluxccl.Text;
import io.fluxccl.Timeout;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.concurrent.BlockingTasks;
import io.fluxccl.trace.CallRecord;
import io.fluxccl.trace.FlightRecorder;
import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.concurrent.TimeUnit;

/**
 * Aborts because of runs that take longer than their limits. The error names the rank for which
 * kernels waited last, and quotes its answer about its activity.
 */
final class LateRuns {
  private static final long ANSWER_MILLIS = 5_000;

  private LateRuns() {}

  /**
   * Aborts because of a late run, after the awaited rank has answered or {@value #ANSWER_MILLIS} ms
   * have passed.
   */
  static void end(Lane lane, Run run) {
    if (lane.communicator.failure() != null) {
      return;
    }
    Duration limit = Duration.ofNanos(run.limitNs());
    Communicator blamed = run.others() == null ? lane.communicator : run.others().waiting();
    int waitedFor = blamed.abortFlag().waitingFor();
    boolean mayAnswer =
        blamed == lane.communicator
            && waitedFor >= 0
            && blamed.bootstrap().unresponsiveRank().isEmpty()
            && blamed.interruption().isEmpty();
    if (!mayAnswer) {
      blamed.abort(timeoutOf(blamed, run.description(), limit, ""));
      return;
    }
    lane.comparison
        .ask(waitedFor)
        .completeOnTimeout("", ANSWER_MILLIS, TimeUnit.MILLISECONDS)
        .thenAcceptAsync(
            answer -> blamed.abort(timeoutOf(blamed, run.description(), limit, answer)),
            BlockingTasks.EXECUTOR);
  }

  /**
   * Returns the timeout of a run. It names the rank that answers no heartbeat, or else the rank to
   * which the link is down, or else the rank for which kernels waited last.
   *
   * @param what the run, for the message
   * @param limit the time limit of the run
   * @param answer the activity that the awaited rank reports; empty if it did not answer
   */
  static Timeout timeoutOf(Communicator communicator, String what, Duration limit, String answer) {
    OptionalInt silent = communicator.bootstrap().unresponsiveRank();
    Optional<FluxCclException> link = communicator.interruption();
    int waitedFor = communicator.abortFlag().waitingFor();
    String diagnosis;
    if (silent.isPresent()) {
      String down = link.map(broken -> "; " + broken.getMessage()).orElse("");
      diagnosis = "rank " + silent.getAsInt() + " answers no heartbeat" + down;
    } else if (link.isPresent()) {
      diagnosis = link.get().getMessage();
    } else if (waitedFor >= 0) {
      String does = answer.isEmpty() ? "is alive, but did not answer what it does" : answer;
      diagnosis = "the last long wait was for rank " + waitedFor + ", which " + does;
    } else if (communicator.abortFlag().isWaitingForOwnProxy()) {
      diagnosis = "its kernels wait for this rank's proxy thread, which makes no progress";
    } else {
      diagnosis =
          "its kernels waited long for no rank: this rank's device was at work on it or on what was"
              + " enqueued before it";
    }
    int rank = communicator.bootstrap().rank();
    long millis = Deadline.after(limit).timeout().toMillis();
    int blamed = silent.orElse(link.map(FluxCclException::rank).orElse(waitedFor));
    String text = "%s on rank %d: not done within %d ms; %s";
    return Timeout.of(blamed, text, what, rank, millis, diagnosis);
  }

  /** Returns what this rank does, as the flight recorder knows it: {@code is in barrier 3 ...}. */
  static String activity(Lane lane) {
    FlightRecorder recorder = lane.communicator.recorder();
    int tag = lane.options.tag();
    if (!recorder.isOn()) {
      return "does not record its calls (" + FlightRecorder.VARIABLE + "=0)";
    }
    return activity(recorder.calls(), tag, System.nanoTime());
  }

  /**
   * Returns what a rank does.
   *
   * @param calls the oldest first
   * @param tag of the lane on which it is waited for
   */
  static String activity(List<CallRecord> calls, int tag, long nowNs) {
    CallRecord running = null;
    CallRecord last = null;
    for (CallRecord call : calls) {
      boolean isBetter = running == null || running.lane() != tag && call.lane() == tag;
      running = call.isInFlight() && isBetter ? call : running;
      last = call.lane() == tag ? call : last;
    }
    if (running != null) {
      return Text.of(
          "is in %s of lane %d for %s",
          running.label(), running.lane(), since(running.enqueuedNs(), nowNs));
    }
    if (last == null) {
      return "has called nothing on lane " + tag;
    }
    return Text.of(
        "has called nothing on lane %d since its %s ended %s ago",
        tag, last.label(), since(last.endedNs(), nowNs));
  }

  private static String since(long beforeNs, long nowNs) {
    return TimeUnit.NANOSECONDS.toMillis(nowNs - beforeNs) + " ms";
  }
}
