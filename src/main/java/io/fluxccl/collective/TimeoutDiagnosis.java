package io.fluxccl.collective;

import io.fluxccl.Deadline;
import io.fluxccl.Timeout;
import io.fluxccl.communicator.Communicator;
import java.time.Duration;
import java.util.OptionalInt;

/** Whom to blame when a run takes too long. */
final class TimeoutDiagnosis {
  private TimeoutDiagnosis() {}

  /**
   * The time-out of a run.
   *
   * @param what the run, for the message
   * @param limit the time that it had
   * @return names the rank that answers no heartbeat, or else the one that kernels waited for last
   */
  static Timeout of(Communicator communicator, String what, Duration limit) {
    OptionalInt silent = communicator.bootstrap().unresponsiveRank();
    int waitedFor = communicator.abortFlag().waitingFor();
    String who;
    if (silent.isPresent()) {
      who = "rank " + silent.getAsInt() + " answers no heartbeat";
    } else if (waitedFor >= 0) {
      who =
          "the last long wait was for rank "
              + waitedFor
              + ", which is alive: does it enqueue the same operations? Or is the limit too short?";
    } else if (communicator.abortFlag().isWaitingForOwnProxy()) {
      who = "its kernels wait for this rank's proxy thread, which does not get on";
    } else {
      who = "no rank was waited for long: is the limit too short?";
    }
    return new Timeout(
        silent.orElse(waitedFor),
        what
            + " on rank "
            + communicator.bootstrap().rank()
            + ": not done within "
            + Deadline.after(limit).timeout().toMillis()
            + " ms; "
            + who);
  }
}
