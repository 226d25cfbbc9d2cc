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
 * <p>Each context has one daemon thread, on which its connections' futures complete: never block
 * it, and run long work elsewhere.
 */
public final class IbTransport implements TransportProvider {
  /** The number of transports: IB0 to IB7. */
  public static final int MAX_DEVICES = 8;

  private static final String NO_PEER_MEMORY =
      "RDMA devices can't reach GPU memory: nvidia-peermem is not loaded (modprobe nvidia-peermem)";

  private final Path connectionManager;
  private final Path peerMemory;
  private final Path nvidia;

  /** Creates a provider. Called by {@link java.util.ServiceLoader}. */
  public IbTransport() {
    this(Path.of("/"));
  }

  /** Creates a provider that reads the machine's files under another root. For tests. */
  IbTransport(Path root) {
    connectionManager = root.resolve("dev/infiniband/rdma_cm");
    peerMemory = root.resolve("sys/module/nvidia_peermem");
    nvidia = root.resolve("proc/driver/nvidia");
  }

  /** Returns the number of this machine's RDMA devices that IB0 to IB7 can name, 0 to 8. */
  public static int getIbDeviceCount() {
    return Math.min(MAX_DEVICES, RdmaDevices.ofThisMachine().size());
  }

  /**
   * Returns the device for a pair of ranks. The traffic of a host is spread over its devices. Both
   * ends choose the same device index, which is the same rail.
   *
   * @param localRank the local rank of one end on its host
   * @param remoteLocalRank the local rank of the other end on its host
   * @param devices the number of devices of every host, 1 to 8
   * @return IB0 to IB7
   */
  public static Transport rankToIbDevice(int localRank, int remoteLocalRank, int devices) {
    if (devices < 1 || devices > MAX_DEVICES) {
      throw InvalidUsage.of("devices=%s; give 1 to %s", devices, MAX_DEVICES);
    }
    if (localRank < 0 || remoteLocalRank < 0) {
      throw InvalidUsage.of(
          "localRank=%s, remoteLocalRank=%s; give 0 or more", localRank, remoteLocalRank);
    }
    // Hierarchical collectives connect ranks with equal local ranks; these pairs use all rails.
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
          "%s has no IPv4 address; give one to its network interface, or name one by %s=%s=a.b.c.d"
              .formatted(device.name(), RdmaDevices.VARIABLE, device.name()));
    }
    if (!Files.isReadable(connectionManager) || !Files.isWritable(connectionManager)) {
      return Optional.of(
          connectionManager
              + (Files.exists(connectionManager)
                  ? " may not be opened by this user"
                  : " is missing: modprobe rdma_ucm"));
    }
    return Optional.empty();
  }

  @Override
  public Optional<String> unreachableBecause(Transport transport, DeviceKind kind) {
    index(transport);
    OptionalLong limit = LockedMemory.limit();
    if (limit.orElse(Long.MAX_VALUE) < LockedMemory.LEAST) {
      return Optional.of(
          "no more than %d bytes may be registered (ulimit -l)".formatted(limit.getAsLong()));
    }
    return kind == DeviceKind.CUDA && !Files.isDirectory(peerMemory)
        ? Optional.of(NO_PEER_MEMORY)
        : Optional.empty();
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
    if (Files.isDirectory(nvidia)) {
      line +=
          Files.isDirectory(peerMemory) ? ", GPU memory by nvidia-peermem" : "; " + NO_PEER_MEMORY;
    }
    return Optional.of(line);
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
        transport, environment, VerbsLibrary.get(), device.address(), IbMemoryHandle.PIECE);
  }

  private static int index(Transport transport) {
    int index = transport.ordinal() - Transport.IB0.ordinal();
    if (index < 0 || index >= MAX_DEVICES) {
      throw InvalidUsage.of("transport=%s; this provider has IB0 to IB7", transport);
    }
    return index;
  }
}
