package io.fluxccl.group;

import io.fluxccl.Deadline;
import io.fluxccl.InvalidUsage;
import io.fluxccl.collective.CollectivesOptions;
import io.fluxccl.transport.TransportFlags;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Map;

/**
 * The options of a {@link RankGroup}. Immutable; {@code with…} methods give a changed copy.
 *
 * @param timeout of finding the other ranks, and later of each set-up
 * @param device of this rank; every rank must choose the same kind
 * @param collectives how {@link RankGroup#collectives} work; their time limit and tag are the
 *     group's
 */
public record RankGroupOptions(
    Duration timeout, DeviceChoice device, CollectivesOptions collectives) {
  /** Environment variable: a tuning file. */
  public static final String TUNING_VARIABLE = "FLUXCCL_TUNING";

  /** Environment variable: what may be used between hosts, for example IB,ETHERNET or IB0,IB1. */
  public static final String NETWORK_VARIABLE = "FLUXCCL_NETWORK";

  /** Refuses a time-out that is not positive and a missing device. */
  public RankGroupOptions {
    if (timeout.isNegative() || timeout.isZero()) {
      throw new InvalidUsage("timeout=" + timeout + "; give more than zero");
    }
    if (device == null) {
      throw new InvalidUsage("device=null; name one of DeviceChoice's");
    }
  }

  /** Creates options with those of collectives that the environment sets. */
  public RankGroupOptions(Duration timeout, DeviceChoice device) {
    this(timeout, device, collectivesFromEnvironment());
  }

  /**
   * Returns 30 s, the device of {@link DeviceChoice#fromEnvironment}, and {@link
   * #collectivesFromEnvironment}.
   */
  public static RankGroupOptions fromEnvironment() {
    return new RankGroupOptions(Deadline.DEFAULT_TIMEOUT, DeviceChoice.fromEnvironment());
  }

  /**
   * Returns the default options of collectives, with the tuning file that FLUXCCL_TUNING names and
   * the networks of FLUXCCL_NETWORK.
   *
   * @throws InvalidUsage if FLUXCCL_NETWORK names what is none
   */
  public static CollectivesOptions collectivesFromEnvironment() {
    return collectivesFrom(System.getenv());
  }

  static CollectivesOptions collectivesFrom(Map<String, String> environment) {
    CollectivesOptions options = CollectivesOptions.DEFAULT;
    String tuning = environment.getOrDefault(TUNING_VARIABLE, "");
    if (!tuning.isBlank()) {
      options = options.withTuning(Path.of(tuning));
    }
    String networks = environment.getOrDefault(NETWORK_VARIABLE, "");
    if (networks.isBlank()) {
      return options;
    }
    try {
      return options.withNetworks(TransportFlags.parse(networks));
    } catch (InvalidUsage e) {
      throw new InvalidUsage(NETWORK_VARIABLE + "=" + networks + ": " + e.getMessage(), e);
    }
  }

  /** Returns these options with another time limit. */
  public RankGroupOptions withTimeout(Duration newTimeout) {
    return new RankGroupOptions(newTimeout, device, collectives);
  }

  /** Returns these options with another device. */
  public RankGroupOptions withDevice(DeviceChoice newDevice) {
    return new RankGroupOptions(timeout, newDevice, collectives);
  }

  /** Returns these options with other options of collectives. */
  public RankGroupOptions withCollectives(CollectivesOptions newCollectives) {
    return new RankGroupOptions(timeout, device, newCollectives);
  }
}
