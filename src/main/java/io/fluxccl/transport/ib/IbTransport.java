// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.ib;

import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.Text;
import io.fluxccl.TransportFailure;
import io.fluxccl.device.DeviceKind;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.TransportContext;
import io.fluxccl.transport.TransportEnvironment;
import io.fluxccl.transport.TransportProvider;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.EnumSet;
import java.util.List;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.Set;
import java.util.stream.Stream;

/**
 * Provides {@link Transport#IB0} to {@link Transport#IB7}: the machine's RDMA devices, InfiniBand
 * or RoCE, by name. The environment variable {@code FLUXCCL_IB_DEVICES} chooses and orders them,
 * for example {@code mlx5_2,mlx5_0:2}.
 *
 * <p>Each context has one daemon thread, on which its connections' futures complete: never block
 * it, and run long work elsewhere.
 */
public final class IbTransport implements TransportProvider {
  /** The number of transports: IB0 to IB7. */
  public static final int MAX_DEVICES = 8;

  private final Path peerMemory;
  private final Path nvidia;

  /** Creates a provider. Called by {@link java.util.ServiceLoader}. */
  public IbTransport() {
    this(Path.of("/"));
  }

  /** Creates a provider that reads the machine's files under another root. For tests. */
  IbTransport(Path root) {
    peerMemory = root.resolve("sys/module/nvidia_peermem");
    nvidia = root.resolve("proc/driver/nvidia");
  }

  /** Returns the number of this machine's RDMA devices that IB0 to IB7 can name, 0 to 8. */
  public static int getIbDeviceCount() {
    return Math.min(MAX_DEVICES, RdmaDevices.ofThisMachine().size());
  }

  @Override
  public Set<Transport> transports() {
    return EnumSet.range(Transport.IB0, Transport.IB7);
  }

  @Override
  public Optional<String> unavailableBecause(Transport transport) {
    int index = index(transport);
    Optional<String> noVerbs = VerbsLibrary.unavailableBecause();
    if (noVerbs.isPresent()) {
      return noVerbs;
    }
    List<RdmaDevices.Device> devices;
    try {
      devices = RdmaDevices.ofThisMachine();
    } catch (InvalidUsage e) {
      return Optional.of(e.getMessage());
    }
    if (index >= devices.size()) {
      return Optional.of(
          devices.isEmpty()
              ? RdmaDevices.knownToKernel()
                  ? "the verbs list no device, although the kernel has some (ibv_devices): modprobe"
                      + " ib_uverbs; apt-get install ibverbs-providers"
                  : "this machine has no RDMA device (/sys/class/infiniband is empty)"
              : "this machine has only " + devices.size() + " RDMA devices: " + names(devices));
    }
    return unusableBecause(devices.get(index));
  }

  private static Optional<String> unusableBecause(RdmaDevices.Device device) {
    if (!device.active()) {
      return Optional.of(
          Text.of(
              "port %d of %s has no link: it is not ACTIVE (ibv_devinfo)",
              device.port(), device.name()));
    }
    if (device.gids().isEmpty()) {
      return Optional.of(
          Text.of(
              "port %d of %s has no address (GID); is its network interface up?",
              device.port(), device.name()));
    }
    Path node = device.node();
    if (node != null && (!Files.isReadable(node) || !Files.isWritable(node))) {
      return Optional.of(
          node
              + (Files.exists(node)
                  ? " may not be opened by this user"
                  : " is missing: modprobe ib_uverbs, or give the container --device"
                      + " /dev/infiniband"));
    }
    return Optional.empty();
  }

  @Override
  public Optional<String> unreachableBecause(
      Transport transport, DeviceKind kind, boolean exportsDmaBufs) {
    int index = index(transport);
    OptionalLong limit = LockedMemory.limit();
    if (limit.orElse(Long.MAX_VALUE) < LockedMemory.LEAST) {
      return Optional.of(
          Text.of("no more than %d bytes may be registered (ulimit -l)", limit.getAsLong()));
    }
    if (kind == DeviceKind.HOST || Files.isDirectory(peerMemory)) {
      return Optional.empty();
    }
    Optional<String> noDmaBufs =
        exportsDmaBufs
            ? refusesDmaBufsBecause(index)
            : Optional.of("the GPU's driver exports no dma-bufs");
    return noDmaBufs.map(IbTransport::outOfReach);
  }

  private static String outOfReach(String noDmaBufs) {
    return "RDMA devices can't reach GPU memory: "
        + noDmaBufs
        + ", and nvidia-peermem is not loaded (modprobe nvidia-peermem)";
  }

  private static Optional<String> refusesDmaBufsBecause(int index) {
    List<RdmaDevices.Device> devices = RdmaDevices.ofThisMachine();
    if (index >= devices.size()) {
      return Optional.of("there is no device IB" + index);
    }
    RdmaDevices.Device device = devices.get(index);
    try (Verbs.Port port = VerbsLibrary.get().open(device.name(), device.port())) {
      return port.refusesDmaBufsBecause();
    } catch (IOException e) {
      return Optional.of(e.getMessage());
    }
  }

  private static String names(List<RdmaDevices.Device> devices) {
    return String.join(" ", devices.stream().map(RdmaDevices.Device::label).toList());
  }

  @Override
  public Optional<String> description(Transport transport) {
    RdmaDevices.Device device = RdmaDevices.ofThisMachine().get(index(transport));
    String address =
        device.preferredGid().map(gid -> gid.kind().layer() + ") at " + gid.address()).orElse("");
    String line = device.label() + " (" + address + lockedMemory();
    return Optional.of(Files.isDirectory(nvidia) ? line + gpuMemory(index(transport)) : line);
  }

  private String gpuMemory(int index) {
    Optional<String> noDmaBufs = refusesDmaBufsBecause(index);
    if (Files.isDirectory(peerMemory)) {
      return ", GPU memory by " + (noDmaBufs.isEmpty() ? "dma-buf or " : "") + "nvidia-peermem";
    }
    return noDmaBufs.map(why -> "; " + outOfReach(why)).orElse(", GPU memory by dma-buf");
  }

  private static String lockedMemory() {
    OptionalLong limit = LockedMemory.limit();
    return limit.isPresent()
        ? ", no more than " + limit.getAsLong() + " bytes registered (ulimit -l)"
        : "";
  }

  @Override
  public TransportContext open(Transport transport, TransportEnvironment environment) {
    unavailableBecause(transport)
        .ifPresent(
            why -> {
              throw new TransportFailure(
                  FluxCclException.NO_RANK, transport + " is unavailable: " + why);
            });
    RdmaDevices.Device device = RdmaDevices.ofThisMachine().get(index(transport));
    return IbContext.open(transport, environment, VerbsLibrary.get(), device, IbMemoryHandle.PIECE);
  }

  private static int index(Transport transport) {
    int index = transport.ordinal() - Transport.IB0.ordinal();
    if (index < 0 || index >= MAX_DEVICES) {
      throw InvalidUsage.of("transport=%s; this provider has IB0 to IB7", transport);
    }
    return index;
  }

  /** The limit of memory that this process may register: registered memory can't be paged out. */
  static final class LockedMemory {
    /**
     * The least sufficient limit in bytes. With less, the library's own memory for one small job
     * may not fit.
     */
    static final long LEAST = 64L << 20;

    private static final Path SELF = Path.of("/proc/self");
    private static final int CAP_IPC_LOCK = 14;

    private LockedMemory() {}

    /** Returns the limit of this process in bytes, or empty if there is none. */
    static OptionalLong limit() {
      return limit(SELF);
    }

    /** Returns the limit of a process, given its folder under {@code /proc}. */
    static OptionalLong limit(Path process) {
      boolean mayIgnoreIt =
          field(process.resolve("status"), "CapEff:")
              .map(word -> (Long.parseUnsignedLong(word, 16) >>> CAP_IPC_LOCK & 1) == 1)
              .orElse(false);
      Optional<String> soft = field(process.resolve("limits"), "Max locked memory");
      return mayIgnoreIt || soft.isEmpty() || soft.get().equals("unlimited")
          ? OptionalLong.empty()
          : OptionalLong.of(Long.parseLong(soft.get()));
    }

    /** Returns the first word after a name, or empty if the file has no such line. */
    private static Optional<String> field(Path file, String name) {
      try (Stream<String> lines = Files.lines(file)) {
        return lines
            .filter(line -> line.startsWith(name))
            .map(line -> line.substring(name.length()).strip().split("\\s+")[0])
            .findFirst();
      } catch (IOException e) {
        return Optional.empty();
      }
    }
  }
}
