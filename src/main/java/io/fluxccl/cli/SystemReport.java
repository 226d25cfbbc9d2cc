// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.NativeLibrary;
import io.fluxccl.Text;
import io.fluxccl.bootstrap.UniqueId;
import io.fluxccl.collective.AlgorithmFamily;
import io.fluxccl.collective.CollectivesOptions;
import io.fluxccl.collective.FusedAllReduce;
import io.fluxccl.device.DeviceKind;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.device.cuda.CudaDriver;
import io.fluxccl.device.cuda.CudaModule;
import io.fluxccl.device.host.SegmentDirectory;
import io.fluxccl.group.JoinOptions;
import io.fluxccl.settings.Setting;
import io.fluxccl.settings.Settings;
import io.fluxccl.trace.Snapshot;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.TransportFlags;
import io.fluxccl.transport.TransportProvider;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.ServiceConfigurationError;
import java.util.ServiceLoader;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import picocli.CommandLine.Command;
import picocli.CommandLine.Option;

/**
 * A section of what {@code info} shows.
 *
 * @param title of the section
 * @param named lines with a name, such as a transport: available, or why not
 * @param lines without a name
 */
record SystemReport(String title, Map<String, String> named, List<String> lines) {
  private static final String SHARED_MEMORY_VARIABLE = "FLUXCCL_SHM_DIR";
  private static final String SECRET = "(secret)";
  private static final double GIB = 1L << 30;

  /** Returns all sections. */
  static List<SystemReport> of(CliContext context) {
    Map<String, String> environment = new TreeMap<>(context.environment());
    environment.keySet().removeIf(name -> !name.startsWith("FLUXCCL_"));
    Settings.all().stream()
        .filter(Setting::isSecret)
        .forEach(each -> environment.computeIfPresent(each.name(), (name, text) -> hidden(text)));
    List<String> devices = new ArrayList<>(List.of(host(context.environment())));
    devices.addAll(gpus());
    Map<String, String> transports =
        transports(ServiceLoader.load(TransportProvider.class).iterator());
    transports.put("other hosts", otherHosts());
    return List.of(
        new SystemReport("system", machine(), null),
        new SystemReport("GPU support", gpuRequirements(), null),
        new SystemReport("devices", null, devices),
        new SystemReport("transports", transports, null),
        new SystemReport("algorithms", null, algorithms()),
        new SystemReport("environment", environment, null));
  }

  private static List<String> algorithms() {
    Stream<String> ofFamilies =
        ServiceLoader.load(AlgorithmFamily.class).stream()
            .map(ServiceLoader.Provider::get)
            .sorted(Comparator.comparing(AlgorithmFamily::name))
            .flatMap(
                family -> family.description().stream().map(line -> family.name() + ": " + line));
    return Stream.concat(ofFamilies, Stream.of("any: " + FusedAllReduce.DESCRIPTION)).toList();
  }

  /** Returns an id without its secret; of another secret nothing. */
  private static String hidden(String value) {
    try {
      return UniqueId.fromBase64(value).toString();
    } catch (InvalidUsage e) {
      return SECRET;
    }
  }

  private static Map<String, String> machine() {
    Map<String, String> system = new LinkedHashMap<>();
    system.put("version", RootCommand.Version.current());
    system.put(
        "java", properties("%s (%s), %s", "java.runtime.version", "java.vendor", "java.home"));
    system.put("os", properties("%s %s %s", "os.name", "os.version", "os.arch"));
    return system;
  }

  private static String properties(String form, String... names) {
    return Text.of(form, List.of(names).stream().map(System::getProperty).toArray());
  }

  private static String host(Map<String, String> environment) {
    String memory = "";
    if (ManagementFactory.getOperatingSystemMXBean()
        instanceof com.sun.management.OperatingSystemMXBean machine) {
      double free = machine.getFreeMemorySize() / GIB;
      memory = Text.of(", %.1f GiB memory (%.1f free)", machine.getTotalMemorySize() / GIB, free);
    }
    int cores = Runtime.getRuntime().availableProcessors();
    String shared = sharedMemory(environment, SegmentDirectory.SHARED_MEMORY);
    return "host: " + cores + " cores" + memory + ", " + shared;
  }

  /** Returns where ranks of a host share memory, or why they can't. */
  static String sharedMemory(Map<String, String> environment, Path preferred) {
    String chosen = environment.getOrDefault(SHARED_MEMORY_VARIABLE, "");
    Path folder = SegmentDirectory.choose(chosen, preferred);
    if (!Files.isDirectory(folder) || !Files.isWritable(folder)) {
      return chosen.isBlank()
          ? folder + " can't be written, so ranks of other processes can't share memory"
          : SHARED_MEMORY_VARIABLE + "=" + chosen + " is no directory that this user can write to";
    }
    try {
      double free = Files.getFileStore(folder).getUsableSpace() / GIB;
      return Text.of("shared memory in %s (%.1f GiB free)", folder, free);
    } catch (IOException e) {
      return "shared memory in " + folder + " (free space unknown: " + e.getMessage() + ")";
    }
  }

  /** Returns the requirements of GPUs by name: available, or why not. */
  private static Map<String, String> gpuRequirements() {
    Map<String, String> support = new LinkedHashMap<>();
    support.put(
        "CUDA driver",
        availability(CudaDriver.unavailableBecause(), ", sees " + CudaDriver.count() + " GPUs"));
    support.put("libfluxccl", availability(NativeLibrary.unavailableBecause(), ""));
    support.put("compilers", String.join("; ", CudaModule.compilers()));
    return support;
  }

  private static String availability(Optional<String> unavailableBecause, String details) {
    return unavailableBecause
        .map(reason -> "not available, because " + reason)
        .orElse("available" + details);
  }

  /** Returns a line for each GPU, with the GPUs whose memory it reaches, and by which link. */
  static List<String> gpus() {
    return IntStream.range(0, CudaDriver.count())
        .mapToObj(index -> "cuda:" + index + ": " + describe(index))
        .toList();
  }

  private static String describe(int index) {
    try (CudaDevice gpu = CudaDevice.open(index)) {
      String node = gpu.numaNode() < 0 ? "" : ", NUMA node " + gpu.numaNode();
      List<String> peers =
          IntStream.range(0, CudaDriver.count())
              .filter(peer -> peer != index && gpu.canAccessPeer(peer))
              .mapToObj(peer -> "cuda:" + peer + " by " + CudaDriver.link(index, peer))
              .toList();
      String reached = peers.isEmpty() ? "no other GPU" : String.join(", ", peers);
      return gpu.description() + node + ", reaches " + reached;
    } catch (FluxCclException e) {
      return "can't be used: " + e.getMessage();
    }
  }

  /** Returns the transports between hosts, as far as this host decides. */
  private static String otherHosts() {
    try {
      TransportFlags allowed = JoinOptions.of(0, 1).collectives().networks();
      return Text.of(
          "memory of the host %s, of GPUs %s%s",
          networks(allowed, DeviceKind.HOST, false),
          networks(allowed, DeviceKind.CUDA, exportsDmaBufs()),
          allowed.equals(CollectivesOptions.NETWORKS) ? "" : "; by FLUXCCL_NETWORK");
    } catch (InvalidUsage e) {
      return e.getMessage();
    }
  }

  /** Returns whether the first GPU exports its memory as dma-bufs. */
  private static boolean exportsDmaBufs() {
    if (CudaDriver.count() == 0) {
      return false;
    }
    try (CudaDevice gpu = CudaDevice.open(0)) {
      return gpu.exportsDmaBufs();
    } catch (FluxCclException e) {
      return false;
    }
  }

  private static String networks(TransportFlags allowed, DeviceKind kind, boolean exportsDmaBufs) {
    List<String> rails = new ArrayList<>();
    for (TransportProvider provider : ServiceLoader.load(TransportProvider.class)) {
      provider.transports().stream()
          .sorted()
          .filter(network -> network != Transport.ETHERNET && allowed.contains(network))
          .filter(network -> provider.unavailableBecause(network).isEmpty())
          .filter(network -> provider.unreachableBecause(network, kind, exportsDmaBufs).isEmpty())
          .forEach(network -> rails.add(network.name()));
    }
    String last = allowed.contains(Transport.ETHERNET) ? "ETHERNET" : "nothing";
    return rails.isEmpty()
        ? "by " + last
        : "by " + String.join(" ", rails) + " where they have them too, else " + last;
  }

  /** Returns the state of each transport, and of each provider that can't be loaded. */
  static Map<String, String> transports(Iterator<TransportProvider> providers) {
    Map<String, String> transports = new LinkedHashMap<>();
    for (Transport transport : Transport.values()) {
      transports.put(transport.name(), TransportProvider.absentBecause(transport));
    }
    int broken = 0;
    while (broken <= Transport.values().length) {
      try {
        if (!providers.hasNext()) {
          break;
        }
        TransportProvider provider = providers.next();
        for (Transport transport : provider.transports()) {
          Optional<String> reason = provider.unavailableBecause(transport);
          Optional<String> details =
              reason.isPresent() ? Optional.empty() : provider.description(transport);
          transports.put(
              transport.name(), availability(reason, details.map(text -> ": " + text).orElse("")));
        }
      } catch (ServiceConfigurationError | LinkageError e) {
        broken++;
        transports.put("(provider " + broken + ")", "can't be loaded: " + e.getMessage());
      }
    }
    return transports;
  }

  /** {@code fluxccl info}. */
  @Command(
      name = "info",
      description = "Show the version, the machine, devices, transports and algorithms.",
      sortOptions = false)
  static final class InfoCommand implements Callable<Integer> {
    private final CliContext context;

    @Option(names = "--json", description = "Write JSON to standard output.")
    private boolean json;

    InfoCommand(CliContext context) {
      this.context = context;
    }

    @Override
    public Integer call() {
      List<SystemReport> report = SystemReport.of(context);
      context.out().println(json ? json(report) : text(report));
      return ExitCode.OK;
    }

    private static String text(List<SystemReport> report) {
      StringBuilder text = new StringBuilder();
      for (SystemReport section : report) {
        text.append(section.title()).append('\n');
        List<String> lines = section.named() == null ? section.lines() : lines(section.named());
        (lines.isEmpty() ? List.of("no FLUXCCL_ variable is set") : lines)
            .forEach(line -> text.append("  ").append(line).append('\n'));
      }
      return text.toString().stripTrailing();
    }

    private static List<String> lines(Map<String, String> entries) {
      return entries.entrySet().stream()
          .map(entry -> Text.of("%-12s %s", entry.getKey(), entry.getValue()))
          .toList();
    }

    private static Snapshot json(List<SystemReport> report) {
      Snapshot json = Snapshot.EMPTY;
      for (SystemReport section : report) {
        String title = section.title().toLowerCase(Locale.ROOT).replace(' ', '_');
        json = json.with(title, section.named() == null ? section.lines() : tree(section.named()));
      }
      return json;
    }

    private static Snapshot tree(Map<String, String> entries) {
      Snapshot tree = Snapshot.EMPTY;
      for (Map.Entry<String, String> entry : entries.entrySet()) {
        tree = tree.with(entry.getKey(), entry.getValue());
      }
      return tree;
    }
  }
}
