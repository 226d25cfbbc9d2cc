package io.fluxccl.testkit;

import io.fluxccl.Aborted;
import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.fluxccl.Timeout;
import java.time.Duration;

/** Where the ranks of one JVM wait for each other, without the bootstrap. */
final class Meeting {
  private static final Duration LIMIT = Duration.ofSeconds(60);

  private final int nRanks;

  // All guarded by this.
  private int arrived;
  private long meetings;
  private boolean over;

  Meeting(int nRanks) {
    this.nRanks = nRanks;
  }

  /** For another run of all ranks. */
  synchronized void begin() {
    arrived = 0;
    over = false;
  }

  /** Nobody waits any more: a rank will not come. */
  synchronized void end() {
    over = true;
    notifyAll();
  }

  synchronized void await(int rank) {
    Deadline deadline = Deadline.after(LIMIT);
    long meeting = meetings;
    if (!over && ++arrived == nRanks) {
      arrived = 0;
      meetings++;
      notifyAll();
    }
    while (meeting == meetings && !over && !deadline.expired()) {
      try {
        wait(deadline.remainingMillis());
      } catch (InterruptedException e) {
        Thread.currentThread().interrupt();
        throw new Aborted(rank, "meet() on rank " + rank + ": interrupted");
      }
    }
    if (meeting == meetings) {
      throw over
          ? new Aborted(rank, "meet() on rank " + rank + ": another rank has failed")
          : new Timeout(
              FluxCclException.NO_RANK,
              "meet() on rank "
                  + rank
                  + ": not all ranks came within "
                  + LIMIT.toSeconds()
                  + " s, but "
                  + arrived);
    }
  }
}
