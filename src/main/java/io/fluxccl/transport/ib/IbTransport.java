package io.fluxccl.transport.ib;

import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.TransportFailure;
import io.fluxccl.device.DeviceKind;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.TransportContext;
import io.fluxccl.transport.TransportEnvironment;
import io.fluxccl.transport.TransportProvider;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.EnumSet;
import java.util.List;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.Set;

/**
 * Provides {@link Transport#IB0} to {@link Transport#IB7}: the machine's RDMA devices, InfiniBand
 * or RoCE, by name. The environment variable {@code FLUXCCL_IB_DEVICES} chooses and orders them,
 * for example {@code mlx5_2,mlx5_0=10.0.0.5}.
 *
 * <p>Each context has one daemon thread, on which its connections' futures complete: hand long work
 * on, and never block there.
 */
public final class IbTransport implements TransportProvider {
  /** How many transports there are: IB0 to IB7. */
  public static final int MAX_DEVICES = 8;

  /**
   * {@code auto}, which stages a GPU's memory where nvidia-peermem is missing, or {@code always}:
   * for tests, and for comparing. The same on all ranks.
   */
  public static final String STAGING_PROPERTY = "fluxccl.ib.staging";

  private static final Path CONNECTION_MANAGER = Path.of("/dev/infiniband/rdma_cm");
  private static final Path PEER_MEMORY = Path.of("/sys/module/nvidia_peermem");
  private static final Path NVIDIA = Path.of("/proc/driver/nvidia");

  /** For {@link java.util.ServiceLoader}. */
  public IbTransport() {}

  /** How many RDMA devices this machine has that IB0 to IB7 can name, 0 to 8. */
  public static int getIbDeviceCount() {
    return Math.min(MAX_DEVICES, RdmaDevices.ofThisMachine().size());
  }

  /**
   * The device for a pair of ranks, so that a host's traffic is spread over its devices and both
   * ends name the same one, which is the same rail.
   *
   * @param localRank of the one end on its host
   * @param remoteLocalRank of the other end on its own
   * @param devices how many every host has, 1 to 8
   * @return IB0 to IB7
   */
  public static Transport rankToIbDevice(int localRank, int remoteLocalRank, int devices) {
    if (devices < 1 || devices > MAX_DEVICES) {
      throw new InvalidUsage("devices=" + devices + "; give 1 to " + MAX_DEVICES);
    }
    if (localRank < 0 || remoteLocalRank < 0) {
      throw new InvalidUsage(
          "localRank=" + localRank + ", remoteLocalRank=" + remoteLocalRank + "; give 0 or more");
    }
    // Ranks that are the same on their hosts, which hierarchical collectives connect, get all
    // rails.
    int rail = localRank == remoteLocalRank ? localRank : localRank + remoteLocalRank;
    return transportOf(rail % devices);
  }

  private static Transport transportOf(int index) {
    return Transport.values()[Transport.IB0.ordinal() + index];
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
              ? "this machine has no RDMA device (/sys/class/infiniband is empty)"
              : "this machine has only " + devices.size() + " RDMA devices: " + names(devices));
    }
    RdmaDevices.Device device = devices.get(index);
    if (!device.active()) {
      return Optional.of(device.name() + " has no link: no port of it is ACTIVE (ibv_devinfo)");
    }
    if (device.address() == null) {
      return Optional.of(
          device.name()
              + " has no IPv4 address; give one to its network interface, or name one by "
              + RdmaDevices.VARIABLE
              + "="
              + device.name()
              + "=a.b.c.d");
    }
    if (!Files.isReadable(CONNECTION_MANAGER) || !Files.isWritable(CONNECTION_MANAGER)) {
      return Optional.of(
          CONNECTION_MANAGER
              + (Files.exists(CONNECTION_MANAGER)
                  ? " may not be opened by this user"
                  : " is missing: modprobe rdma_ucm"));
    }
    return Optional.empty();
  }

  @Override
  public Optional<String> unreachableBecause(Transport transport, DeviceKind kind) {
    index(transport);
    OptionalLong limit = LockedMemory.limit();
    return limit.orElse(Long.MAX_VALUE) < LockedMemory.LEAST
        ? Optional.of("no more than " + limit.getAsLong() + " bytes may be registered (ulimit -l)")
        : Optional.empty();
  }

  @Override
  public boolean stages(Transport transport, DeviceKind kind) {
    index(transport);
    return isStaged(kind);
  }

  private static String names(List<RdmaDevices.Device> devices) {
    return String.join(" ", devices.stream().map(RdmaDevices.Device::name).toList());
  }

  @Override
  public Optional<String> description(Transport transport) {
    RdmaDevices.Device device = RdmaDevices.ofThisMachine().get(index(transport));
    String layer = device.linkLayer().equals("Ethernet") ? "RoCE" : device.linkLayer();
    String line =
        device.name() + " (" + layer + ") at " + device.address().getHostAddress() + lockedMemory();
    return Optional.of(Files.isDirectory(NVIDIA) ? line + ", GPU memory " + gpuMemory() : line);
  }

  private static String gpuMemory() {
    return isStaged(DeviceKind.CUDA)
        ? "staged: nvidia-peermem is not loaded (modprobe nvidia-peermem)"
        : "by nvidia-peermem";
  }

  /**
   * Whether memory of such a device goes through pinned memory.
   *
   * @throws InvalidUsage if {@link #STAGING_PROPERTY} is neither {@code auto} nor {@code always}
   */
  private static boolean isStaged(DeviceKind kind) {
    String wanted = System.getProperty(STAGING_PROPERTY, "auto");
    if (!wanted.equals("auto") && !wanted.equals("always")) {
      throw new InvalidUsage(STAGING_PROPERTY + "=" + wanted + "; give auto or always");
    }
    return wanted.equals("always") || kind == DeviceKind.CUDA && !Files.isDirectory(PEER_MEMORY);
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
    return IbContext.open(
        transport,
        environment,
        VerbsLibrary.get(),
        device.address(),
        IbMemoryHandle.PIECE,
        isStaged(environment.device().kind()));
  }

  private static int index(Transport transport) {
    int index = transport.ordinal() - Transport.IB0.ordinal();
    if (index < 0 || index >= MAX_DEVICES) {
      throw new InvalidUsage("transport=" + transport + "; this provider has IB0 to IB7");
    }
    return index;
  }
}
