package io.fluxccl.group;

import io.fluxccl.Deadline;
import io.fluxccl.InvalidUsage;
import io.fluxccl.collective.CollectivesOptions;
import java.nio.file.Path;
import java.time.Duration;

/**
 * How a {@link RankGroup} is made. Immutable; {@code with…} methods give a changed copy.
 *
 * @param timeout of finding the others, and later of each set-up
 * @param device which device this rank works on; every rank must choose the same kind
 * @param collectives how {@link RankGroup#collectives} work; their time limit and tag are the
 *     group's
 */
public record RankGroupOptions(
    Duration timeout, DeviceChoice device, CollectivesOptions collectives) {
  /** Environment variable: a tuning file. */
  public static final String TUNING_VARIABLE = "FLUXCCL_TUNING";

  /** Refuses a time-out that is not positive and a missing device. */
  public RankGroupOptions {
    if (timeout.isNegative() || timeout.isZero()) {
      throw new InvalidUsage("timeout=" + timeout + "; give more than zero");
    }
    if (device == null) {
      throw new InvalidUsage("device=null; name one of DeviceChoice's");
    }
  }

  /** With the options of collectives that the environment says. */
  public RankGroupOptions(Duration timeout, DeviceChoice device) {
    this(timeout, device, collectivesFromEnvironment());
  }

  /**
   * 30 s, the device that {@link DeviceChoice#fromEnvironment} says, and {@link
   * #collectivesFromEnvironment}.
   */
  public static RankGroupOptions fromEnvironment() {
    return new RankGroupOptions(Deadline.DEFAULT_TIMEOUT, DeviceChoice.fromEnvironment());
  }

  /** The default options of collectives, with the tuning file that FLUXCCL_TUNING names. */
  public static CollectivesOptions collectivesFromEnvironment() {
    String tuning = System.getenv(TUNING_VARIABLE);
    return tuning == null || tuning.isBlank()
        ? CollectivesOptions.DEFAULT
        : CollectivesOptions.DEFAULT.withTuning(Path.of(tuning));
  }

  /** These options with another time limit. */
  public RankGroupOptions withTimeout(Duration newTimeout) {
    return new RankGroupOptions(newTimeout, device, collectives);
  }

  /** These options with another device. */
  public RankGroupOptions withDevice(DeviceChoice newDevice) {
    return new RankGroupOptions(timeout, newDevice, collectives);
  }

  /** These options with others of the collectives. */
  public RankGroupOptions withCollectives(CollectivesOptions newCollectives) {
    return new RankGroupOptions(timeout, device, newCollectives);
  }
}
