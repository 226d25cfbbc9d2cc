// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.communicator;

import io.fluxccl.Deadline;
import io.fluxccl.InvalidUsage;
import io.fluxccl.settings.Settings;
import io.fluxccl.trace.FlightRecorder;
import java.time.Duration;

/**
 * The options of a communicator. Immutable; {@code with…} methods give a changed copy.
 *
 * @param setupTimeout how long one {@code setup()} may take
 * @param recordedCalls how many of its last calls the flight recorder keeps; 0: none
 * @param deviceTimes whether it also keeps the device's times of calls: for profiling, because each
 *     call then costs two more calls of the driver
 */
public record CommunicatorOptions(Duration setupTimeout, int recordedCalls, boolean deviceTimes) {
  /** The environment variable that is 1 for the device's times of calls, too. */
  public static final String DEVICE_TIMES = "FLUXCCL_DEVICE_TIMES";

  /**
   * 30 s for a set-up. {@value FlightRecorder#VARIABLE} sets the number of calls, and {@value
   * #DEVICE_TIMES} whether the device's times are kept.
   */
  public static final CommunicatorOptions DEFAULT = ofEnvironment(Settings.ofProcess());

  /** Refuses a time-out that is not positive, and a number of calls below 0 or over a million. */
  public CommunicatorOptions {
    if (setupTimeout.isNegative() || setupTimeout.isZero()) {
      throw new InvalidUsage("setupTimeout=" + setupTimeout + "; give more than zero");
    }
    if (recordedCalls < 0 || recordedCalls > FlightRecorder.MOST_CALLS) {
      throw InvalidUsage.of(
          "recordedCalls=%d; give 0 to %d", recordedCalls, FlightRecorder.MOST_CALLS);
    }
  }

  /** Joining a group refuses variables that make no sense; elsewhere the defaults hold then. */
  private static CommunicatorOptions ofEnvironment(Settings settings) {
    try {
      int calls = settings.number(FlightRecorder.VARIABLE).orElse(FlightRecorder.DEFAULT_CALLS);
      return new CommunicatorOptions(Deadline.DEFAULT_TIMEOUT, calls, settings.flag(DEVICE_TIMES));
    } catch (InvalidUsage e) {
      return new CommunicatorOptions(Deadline.DEFAULT_TIMEOUT, FlightRecorder.DEFAULT_CALLS, false);
    }
  }

  /** Returns these options with another time limit for set-ups. */
  public CommunicatorOptions withSetupTimeout(Duration timeout) {
    return new CommunicatorOptions(timeout, recordedCalls, deviceTimes);
  }

  /** Returns these options with another number of calls that the flight recorder keeps. */
  public CommunicatorOptions withRecordedCalls(int calls) {
    return new CommunicatorOptions(setupTimeout, calls, deviceTimes);
  }

  /** Returns these options with or without the device's times of calls. */
  public CommunicatorOptions withDeviceTimes(boolean wanted) {
    return new CommunicatorOptions(setupTimeout, recordedCalls, wanted);
  }
}
