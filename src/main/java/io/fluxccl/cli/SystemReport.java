package io.fluxccl.cli;

import io.fluxccl.InvalidUsage;
import io.fluxccl.bootstrap.UniqueId;
import io.fluxccl.collective.CollectivesOptions;
import io.fluxccl.device.DeviceKind;
import io.fluxccl.group.RankGroupOptions;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.TransportFlags;
import io.fluxccl.transport.TransportProvider;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.ServiceConfigurationError;
import java.util.ServiceLoader;
import java.util.TreeMap;

/**
 * What {@code info} shows.
 *
 * @param system version, Java, operating system
 * @param gpuSupport what GPUs need: available, or why not
 * @param devices one line each, the host first
 * @param transports by name: available, or why not
 * @param algorithms one line each
 * @param environment the FLUXCCL_ variables that are set; secrets only as such
 */
record SystemReport(
    Map<String, String> system,
    Map<String, String> gpuSupport,
    List<String> devices,
    Map<String, String> transports,
    List<String> algorithms,
    Map<String, String> environment) {
  private static final Path SHARED_MEMORY = Path.of("/dev/shm");
  private static final String SECRET = "(secret)";
  private static final double GIB = 1L << 30;

  static SystemReport of(CliContext context) {
    Map<String, String> environment = new TreeMap<>();
    context
        .environment()
        .forEach(
            (name, value) -> {
              if (name.startsWith("FLUXCCL_")) {
                environment.put(name, shown(name, value));
              }
            });
    List<String> devices = new ArrayList<>();
    devices.add(host());
    devices.addAll(context.backend().devices());
    Map<String, String> transports =
        transports(ServiceLoader.load(TransportProvider.class).iterator());
    transports.put("other hosts", otherHosts());
    return new SystemReport(
        machine(),
        context.backend().gpuSupport(),
        devices,
        transports,
        context.backend().algorithms(),
        environment);
  }

  /** A variable's value; of one that holds a secret only what admits nobody to the job. */
  private static String shown(String name, String value) {
    return switch (name) {
      case RankVariables.SECRET -> SECRET;
      case RankVariables.UNIQUE_ID -> uniqueId(value);
      default -> value;
    };
  }

  private static String uniqueId(String value) {
    try {
      return UniqueId.fromBase64(value).toString();
    } catch (InvalidUsage e) {
      return SECRET;
    }
  }

  private static Map<String, String> machine() {
    Map<String, String> system = new LinkedHashMap<>();
    system.put("version", Version.current());
    system.put(
        "java",
        String.format(
            "%s (%s), %s",
            System.getProperty("java.runtime.version"),
            System.getProperty("java.vendor"),
            System.getProperty("java.home")));
    system.put(
        "os",
        String.format(
            "%s %s %s",
            System.getProperty("os.name"),
            System.getProperty("os.version"),
            System.getProperty("os.arch")));
    return system;
  }

  private static String host() {
    StringBuilder line = new StringBuilder("host: ");
    line.append(Runtime.getRuntime().availableProcessors()).append(" cores");
    if (ManagementFactory.getOperatingSystemMXBean()
        instanceof com.sun.management.OperatingSystemMXBean machine) {
      line.append(
          String.format(
              Locale.ROOT,
              ", %.1f GiB memory (%.1f free)",
              machine.getTotalMemorySize() / GIB,
              machine.getFreeMemorySize() / GIB));
    }
    return line.append(", ").append(sharedMemory()).toString();
  }

  private static String sharedMemory() {
    if (!Files.isWritable(SHARED_MEMORY)) {
      return SHARED_MEMORY + " can't be written, so ranks of other processes can't share memory";
    }
    try {
      return String.format(
          Locale.ROOT,
          "shared memory in %s (%.1f GiB free)",
          SHARED_MEMORY,
          Files.getFileStore(SHARED_MEMORY).getUsableSpace() / GIB);
    } catch (IOException e) {
      return "shared memory in " + SHARED_MEMORY + " (free space unknown: " + e.getMessage() + ")";
    }
  }

  /** What is chosen between hosts, as far as this one decides. */
  private static String otherHosts() {
    TransportFlags allowed;
    try {
      allowed = RankGroupOptions.collectivesFromEnvironment().networks();
    } catch (InvalidUsage e) {
      return e.getMessage();
    }
    return "memory of the host "
        + networks(allowed, DeviceKind.HOST)
        + ", of GPUs "
        + networks(allowed, DeviceKind.CUDA)
        + (allowed.equals(CollectivesOptions.NETWORKS) ? "" : "; by FLUXCCL_NETWORK");
  }

  private static String networks(TransportFlags allowed, DeviceKind kind) {
    List<String> rails = new ArrayList<>();
    for (TransportProvider provider : ServiceLoader.load(TransportProvider.class)) {
      provider.transports().stream()
          .sorted()
          .filter(network -> network != Transport.ETHERNET && allowed.contains(network))
          .filter(network -> provider.unavailableBecause(network).isEmpty())
          .filter(network -> provider.unreachableBecause(network, kind).isEmpty())
          .forEach(network -> rails.add(network.name()));
    }
    String last = allowed.contains(Transport.ETHERNET) ? "ETHERNET" : "nothing";
    return "by "
        + (rails.isEmpty()
            ? last
            : String.join(" ", rails) + " where they have them too, else " + last);
  }

  /** What can be said of each transport; a provider that can't even be loaded is told of too. */
  static Map<String, String> transports(Iterator<TransportProvider> providers) {
    Map<String, String> transports = new LinkedHashMap<>();
    for (Transport transport : Transport.values()) {
      transports.put(transport.name(), "not in this build");
    }
    int broken = 0;
    while (true) {
      try {
        if (!providers.hasNext()) {
          return transports;
        }
        TransportProvider provider = providers.next();
        for (Transport transport : provider.transports()) {
          Optional<String> reason = provider.unavailableBecause(transport);
          transports.put(
              transport.name(),
              reason
                  .map(why -> "not available, because " + why)
                  .orElseGet(
                      () ->
                          provider
                              .description(transport)
                              .map(what -> "available: " + what)
                              .orElse("available")));
        }
      } catch (ServiceConfigurationError | LinkageError e) {
        broken++;
        transports.put("(provider " + broken + ")", "can't be loaded: " + e.getMessage());
        if (broken > Transport.values().length) {
          return transports;
        }
      }
    }
  }
}
