package io.fluxccl.communicator;

import io.fluxccl.Deadline;
import io.fluxccl.InvalidUsage;
import java.time.Duration;

/**
 * The options of a communicator. Immutable; {@code with…} methods give a changed copy.
 *
 * @param setupTimeout how long one {@code setup()} may take
 */
public record CommunicatorOptions(Duration setupTimeout) {
  /** 30 s for a set-up. */
  public static final CommunicatorOptions DEFAULT =
      new CommunicatorOptions(Deadline.DEFAULT_TIMEOUT);

  /** Refuses a time-out that is not positive. */
  public CommunicatorOptions {
    if (setupTimeout.isNegative() || setupTimeout.isZero()) {
      throw new InvalidUsage("setupTimeout=" + setupTimeout + "; give more than zero");
    }
  }

  /** Returns these options with another time limit for set-ups. */
  public CommunicatorOptions withSetupTimeout(Duration timeout) {
    return new CommunicatorOptions(timeout);
  }
}
