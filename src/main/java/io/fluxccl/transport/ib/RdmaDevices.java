package io.fluxccl.transport.ib;

import io.fluxccl.InvalidUsage;
import io.netty.util.NetUtil;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.Inet4Address;
import java.net.InetAddress;
import java.net.NetworkInterface;
import java.net.UnknownHostException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.HexFormat;
import java.util.List;
import java.util.Optional;
import java.util.stream.Stream;

/**
 * The RDMA devices of this machine as the kernel shows them: IB0 is the first. They are sorted by
 * name, mlx5_9 before mlx5_10, unless the environment variable {@value #VARIABLE} lists and orders
 * them.
 */
public final class RdmaDevices {
  /**
   * The environment variable with the devices in order, each with an optional address, for example
   * {@code mlx5_2,mlx5_0=10.0.0.5}.
   */
  public static final String VARIABLE = "FLUXCCL_IB_DEVICES";

  private static final Path SYSFS = Path.of("/sys/class/infiniband");
  private static final String IPV4_MAPPED = "0000:0000:0000:0000:0000:ffff:";

  private RdmaDevices() {}

  /**
   * A device.
   *
   * @param name the kernel's name
   * @param address the address by which peers reach it, or null if it has none
   * @param active whether one of its ports has a link
   * @param linkLayer {@code Ethernet} (RoCE), {@code InfiniBand}, or another name of the kernel
   */
  public record Device(String name, Inet4Address address, boolean active, String linkLayer) {}

  /**
   * Returns the devices of this machine.
   *
   * @throws InvalidUsage if {@value #VARIABLE} can't be read or names a device that is missing
   */
  public static List<Device> ofThisMachine() {
    return find(SYSFS, System.getenv(VARIABLE));
  }

  static List<Device> find(Path sysfs, String chosen) {
    List<String> names = children(sysfs);
    if (chosen == null || chosen.isBlank()) {
      return names.stream().map(name -> device(sysfs, name, null)).toList();
    }
    List<Device> devices = new ArrayList<>();
    for (String entry : chosen.split(",")) {
      String[] parts = entry.trim().split("=", 2);
      if (!names.contains(parts[0])) {
        throw InvalidUsage.of(
            "%s=%s: there is no device %s, only %s", VARIABLE, chosen, parts[0], names);
      }
      devices.add(device(sysfs, parts[0], parts.length == 2 ? parse(parts[1]) : null));
    }
    return devices;
  }

  /** Returns a name with padded numbers, so that mlx5_10 follows mlx5_9. */
  private static String sortKey(String name) {
    StringBuilder key = new StringBuilder();
    for (String part : name.split("(?<=\\D)(?=\\d)|(?<=\\d)(?=\\D)")) {
      key.append(part.matches("\\d{1,9}") ? String.format("%09d", Integer.parseInt(part)) : part);
    }
    return key.toString();
  }

  private static Device device(Path sysfs, String name, Inet4Address given) {
    Path ports = sysfs.resolve(name).resolve("ports");
    Inet4Address address = given;
    boolean active = false;
    String linkLayer = "unknown";
    for (String port : children(ports)) {
      active |= read(ports.resolve(port).resolve("state")).contains("ACTIVE");
      linkLayer = read(ports.resolve(port).resolve("link_layer"));
      if (address == null) {
        address = mappedGid(ports.resolve(port).resolve("gids")).orElse(null);
      }
    }
    if (address == null) {
      address = interfaceAddress(sysfs.resolve(name).resolve("device").resolve("net")).orElse(null);
    }
    return new Device(name, address, active, linkLayer);
  }

  /** Returns the IPv4 address of a RoCE device, whose GID is that address mapped to IPv6. */
  private static Optional<Inet4Address> mappedGid(Path gids) {
    for (String index : children(gids)) {
      String gid = read(gids.resolve(index));
      if (gid.startsWith(IPV4_MAPPED)) {
        byte[] bytes =
            HexFormat.of().parseHex(gid.substring(IPV4_MAPPED.length()).replace(":", ""));
        return Optional.of(inet4(bytes));
      }
    }
    return Optional.empty();
  }

  /**
   * Returns the IPv4 address of a device's network interface, which exists with IP over InfiniBand.
   */
  private static Optional<Inet4Address> interfaceAddress(Path interfaces) {
    return children(interfaces).stream()
        .flatMap(RdmaDevices::addresses)
        .filter(Inet4Address.class::isInstance)
        .map(Inet4Address.class::cast)
        .findFirst();
  }

  private static Stream<InetAddress> addresses(String networkInterface) {
    try {
      NetworkInterface found = NetworkInterface.getByName(networkInterface);
      return found == null ? Stream.empty() : found.inetAddresses();
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  private static Inet4Address parse(String address) {
    byte[] bytes = NetUtil.createByteArrayFromIpAddressString(address);
    if (bytes == null || bytes.length != 4) {
      throw InvalidUsage.of(
          "%s has the address %s; give an IPv4 address, a.b.c.d", VARIABLE, address);
    }
    return inet4(bytes);
  }

  /** Returns the address of four bytes. */
  static Inet4Address inet4(byte[] bytes) {
    try {
      return (Inet4Address) InetAddress.getByAddress(Arrays.copyOf(bytes, 4));
    } catch (UnknownHostException e) {
      throw new IllegalStateException(e); // four bytes are always one
    }
  }

  private static List<String> children(Path folder) {
    if (!Files.isDirectory(folder)) {
      return List.of();
    }
    try (Stream<Path> paths = Files.list(folder)) {
      // GIDs are numbered, and the first one that fits is used.
      return paths
          .map(path -> path.getFileName().toString())
          .sorted(Comparator.comparing(RdmaDevices::sortKey))
          .toList();
    } catch (IOException e) {
      return List.of(); // the device was removed
    }
  }

  private static String read(Path file) {
    try {
      return Files.readString(file).strip();
    } catch (IOException e) {
      return ""; // a GID that is not set can't be read
    }
  }
}
