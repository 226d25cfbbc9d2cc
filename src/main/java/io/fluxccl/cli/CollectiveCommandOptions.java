// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import io.fluxccl.InvalidUsage;
import io.fluxccl.collective.CollectivesOptions;
import io.fluxccl.group.DeviceChoice;
import io.fluxccl.group.JoinOptions;
import io.fluxccl.transport.Transport;
import java.time.Duration;
import java.util.Arrays;
import java.util.Locale;
import java.util.Optional;
import java.util.function.UnaryOperator;
import java.util.stream.Collectors;
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
      description = "Limit of one collective, and of each step of the set-up. Default 30.")
  private Double timeoutSeconds;

  /** Returns what these options change of how a rank joins its job. */
  UnaryOperator<JoinOptions> joining() {
    DeviceChoice chosen =
        device == null ? DeviceChoice.fromEnvironment() : DeviceChoice.parse(device);
    Optional<Transport> only = transport();
    Duration limit = timeout();
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
      String all =
          Arrays.stream(Transport.values()).map(t -> ", " + t).collect(Collectors.joining());
      throw new InvalidUsage("transport=" + transport + " is none of auto" + all, e);
    }
  }

  Duration timeout() {
    return PerfOptions.seconds("timeout", timeoutSeconds == null ? 30 : timeoutSeconds, 0.001);
  }
}
