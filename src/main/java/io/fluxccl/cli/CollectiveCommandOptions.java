// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import io.fluxccl.InvalidUsage;
import io.fluxccl.collective.CollectivesOptions;
import io.fluxccl.group.DeviceChoice;
import io.fluxccl.group.JoinOptions;
import io.fluxccl.settings.Settings;
import io.fluxccl.transport.Transport;
import java.time.Duration;
import java.util.Arrays;
import java.util.Locale;
import java.util.Optional;
import java.util.function.UnaryOperator;
import picocli.CommandLine.Option;

/** The options of all commands whose ranks do collectives: on what, over what, how long. */
final class CollectiveCommandOptions {
  private static final String AUTO = "auto";

  @Option(
      names = "--device",
      paramLabel = "DEVICE",
      description = "auto, host, cuda, or cuda:N for one GPU. Default: FLUXCCL_DEVICE, or auto.")
  private String device;

  @Option(
      names = "--transport",
      paramLabel = "NAME",
      defaultValue = AUTO,
      description = "auto (the default), or a transport that 'fluxccl info' lists, such as SHM.")
  private String transport;

  @Option(
      names = "--timeout",
      paramLabel = "SECONDS",
      description = "Limit of one collective (default FLUXCCL_TIMEOUT, or 30) and set-up step.")
  private Double timeoutSeconds;

  /** Returns what these options change of how a rank joins its job. */
  UnaryOperator<JoinOptions> joining() {
    DeviceChoice chosen =
        device == null ? DeviceChoice.fromEnvironment() : DeviceChoice.parse(device);
    Optional<Transport> only = transport();
    Duration limit = timeout(Settings.ofProcess());
    return from -> {
      CollectivesOptions calls = from.collectives().withTimeout(limit);
      return from.withCollectives(only.map(calls::withTransport).orElse(calls))
          .withDevice(chosen)
          .withJoinTimeout(timeoutSeconds == null ? from.joinTimeout() : limit);
    };
  }

  /** Returns the only transport to use, or empty. */
  private Optional<Transport> transport() {
    if (transport.equals(AUTO)) {
      return Optional.empty();
    }
    try {
      return Optional.of(Transport.valueOf(transport.toUpperCase(Locale.ROOT)));
    } catch (IllegalArgumentException e) {
      String all = Arrays.toString(Transport.values());
      throw new InvalidUsage("transport=" + transport + " is neither auto nor one of " + all, e);
    }
  }

  /** Returns the limit of one collective; that of the settings, if no option says it. */
  Duration timeout(Settings settings) {
    Duration set = settings.seconds("FLUXCCL_TIMEOUT").orElse(CollectivesOptions.DEFAULT.timeout());
    return timeoutSeconds == null ? set : PerfOptions.seconds("timeout", timeoutSeconds, 0.001);
  }
}
