package io.fluxccl.group;

import io.fluxccl.Deadline;
import io.fluxccl.InvalidUsage;
import java.time.Duration;

/**
 * How a {@link RankGroup} is made. Immutable; {@code with…} methods give a changed copy.
 *
 * @param timeout of finding the others, and later of each set-up
 * @param device which device this rank works on; every rank must choose the same kind
 */
public record RankGroupOptions(Duration timeout, DeviceChoice device) {
  /** Refuses a time-out that is not positive and a missing device. */
  public RankGroupOptions {
    if (timeout.isNegative() || timeout.isZero()) {
      throw new InvalidUsage("timeout=" + timeout + "; give more than zero");
    }
    if (device == null) {
      throw new InvalidUsage("device=null; name one of DeviceChoice's");
    }
  }

  /** 30 s, and the device that {@link DeviceChoice#fromEnvironment} says. */
  public static RankGroupOptions fromEnvironment() {
    return new RankGroupOptions(Deadline.DEFAULT_TIMEOUT, DeviceChoice.fromEnvironment());
  }

  /** These options with another time limit. */
  public RankGroupOptions withTimeout(Duration newTimeout) {
    return new RankGroupOptions(newTimeout, device);
  }

  /** These options with another device. */
  public RankGroupOptions withDevice(DeviceChoice newDevice) {
    return new RankGroupOptions(timeout, newDevice);
  }
}
