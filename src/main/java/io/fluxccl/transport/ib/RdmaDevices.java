// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.ib;

import io.fluxccl.InvalidUsage;
import io.netty.util.NetUtil;
import java.io.IOException;
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
 * The RDMA devices of this machine: IB0 is the first. They are in the order of {@code
 * ibv_get_device_list}, each with its first port that has a link, unless the environment variable
 * {@value #VARIABLE} lists devices and ports. The kernel's files describe their ports.
 */
final class RdmaDevices {
  /**
   * The environment variable with the devices in order, each with an optional port and an optional
   * address, for example {@code mlx5_2,mlx5_0:2,mlx5_1=10.0.0.5}.
   */
  static final String VARIABLE = "FLUXCCL_IB_DEVICES";

  private static final Path ROOT = Path.of("/");
  private static final String SYSFS = "sys/class/infiniband";
  private static final String UVERBS = "sys/class/infiniband_verbs";
  private static final String NODES = "dev/infiniband";
  private static final String FORM = "name, name:port, name=address or name:port=address";

  private RdmaDevices() {}

  /**
   * A port of a device.
   *
   * @param name the device's name
   * @param port the number of the port, from 1
   * @param active whether the port has a link
   * @param linkLayer {@code Ethernet} (RoCE), {@code InfiniBand}, or another name of the kernel
   * @param gids the addresses by which peers may reach it
   * @param node the file by which programs use the device, or null if the kernel names none
   */
  record Device(
      String name, int port, boolean active, String linkLayer, List<Gid> gids, Path node) {
    /** Returns the name, and the port unless it is the first. */
    String label() {
      return port == 1 ? name : name + ":" + port;
    }

    /** Returns the first GID of the preferred kind. */
    Optional<Gid> preferredGid() {
      return gids.stream().min(Comparator.comparing(Gid::kind).thenComparing(Gid::index));
    }
  }

  /**
   * Returns the devices of this machine; none without verbs.
   *
   * @throws InvalidUsage if {@value #VARIABLE} can't be read or names a device that is missing
   */
  static List<Device> ofThisMachine() {
    return find(ROOT, VerbsLibrary.deviceNames(), System.getenv(VARIABLE));
  }

  /** Returns whether the kernel knows devices, of which the verbs may use none. */
  static boolean knownToKernel() {
    return !children(ROOT.resolve(SYSFS)).isEmpty();
  }

  /**
   * Returns the devices.
   *
   * @param root the folder with {@code sys} and {@code dev}
   * @param names the devices that the verbs list, in order
   * @param chosen the value of {@value #VARIABLE}, or null
   */
  static List<Device> find(Path root, List<String> names, String chosen) {
    if (chosen == null || chosen.isBlank()) {
      return names.stream().map(name -> device(root, name, firstActivePort(root, name))).toList();
    }
    List<Device> devices = new ArrayList<>();
    for (String entry : chosen.split(",")) {
      devices.add(chosen(root, names, chosen, entry.trim()));
    }
    return devices;
  }

  private static Device chosen(Path root, List<String> names, String all, String entry) {
    String[] parts = entry.split("=", 2);
    String[] place = parts[0].split(":", 2);
    String name = place[0];
    if (!names.contains(name)) {
      throw InvalidUsage.of("%s=%s: there is no device %s, only %s", VARIABLE, all, name, names);
    }
    int port = place.length == 1 ? firstActivePort(root, name) : port(root, name, place[1], entry);
    Device device = device(root, name, port);
    return parts.length == 1 ? device : withAddress(device, parts[1]);
  }

  private static int port(Path root, String name, String number, String entry) {
    List<String> ports = children(ports(root, name));
    if (!ports.contains(number)) {
      throw InvalidUsage.of(
          "%s has the entry %s; give %s; the ports of %s are %s",
          VARIABLE, entry, FORM, name, ports);
    }
    return Integer.parseInt(number);
  }

  private static Device withAddress(Device device, String address) {
    byte[] bytes = NetUtil.createByteArrayFromIpAddressString(address);
    if (bytes == null) {
      throw InvalidUsage.of(
          "%s has the address %s; give an IPv4 address, a.b.c.d, or an IPv6 address",
          VARIABLE, address);
    }
    byte[] wanted = bytes.length == Gid.LENGTH ? bytes : mapped(bytes);
    List<Gid> same =
        device.gids().stream().filter(gid -> Arrays.equals(gid.bytes(), wanted)).toList();
    if (same.isEmpty()) {
      throw InvalidUsage.of(
          "%s: %s has no address %s, only %s", VARIABLE, device.label(), address, device.gids());
    }
    return new Device(
        device.name(), device.port(), device.active(), device.linkLayer(), same, device.node());
  }

  /** Returns an IPv4 address in the form of an IPv6 address. */
  private static byte[] mapped(byte[] ipv4) {
    byte[] bytes = new byte[Gid.LENGTH];
    bytes[10] = -1;
    bytes[11] = -1;
    System.arraycopy(ipv4, 0, bytes, 12, ipv4.length);
    return bytes;
  }

  private static Path ports(Path root, String name) {
    return root.resolve(SYSFS).resolve(name).resolve("ports");
  }

  private static boolean isActive(Path port) {
    return read(port.resolve("state")).contains("ACTIVE");
  }

  private static int firstActivePort(Path root, String name) {
    Path ports = ports(root, name);
    return children(ports).stream()
        .filter(port -> isActive(ports.resolve(port)))
        .findFirst()
        .map(Integer::parseInt)
        .orElse(1);
  }

  private static Device device(Path root, String name, int number) {
    Path port = ports(root, name).resolve(Integer.toString(number));
    String layer = read(port.resolve("link_layer"));
    return new Device(
        name,
        number,
        isActive(port),
        layer.isEmpty() ? "unknown" : layer,
        gids(port, layer.equals("Ethernet")),
        node(root, name));
  }

  private static List<Gid> gids(Path port, boolean ethernet) {
    List<Gid> gids = new ArrayList<>();
    for (String index : children(port.resolve("gids"))) {
      String text = read(port.resolve("gids").resolve(index)).replace(":", "");
      if (text.length() == 2 * Gid.LENGTH && !text.matches("0*")) {
        byte[] bytes = HexFormat.of().parseHex(text);
        boolean v1 = read(port.resolve("gid_attrs/types").resolve(index)).contains("v1");
        gids.add(new Gid(Integer.parseInt(index), Gid.kindOf(ethernet, v1, bytes), bytes));
      }
    }
    return gids;
  }

  /** Returns the file of the device: the kernel numbers these files apart from the devices. */
  private static Path node(Path root, String name) {
    Path numbered = root.resolve(UVERBS);
    return children(numbered).stream()
        .filter(uverbs -> read(numbered.resolve(uverbs).resolve("ibdev")).equals(name))
        .findFirst()
        .map(uverbs -> root.resolve(NODES).resolve(uverbs))
        .orElse(null);
  }

  /** Returns the names in a folder, numbers in their order. */
  private static List<String> children(Path folder) {
    if (!Files.isDirectory(folder)) {
      return List.of();
    }
    try (Stream<Path> paths = Files.list(folder)) {
      return paths
          .map(path -> path.getFileName().toString())
          .sorted(Comparator.comparing(String::length).thenComparing(Comparator.naturalOrder()))
          .toList();
    } catch (IOException e) {
      return List.of(); // the device was removed
    }
  }

  private static String read(Path file) {
    try {
      return Files.readString(file).strip();
    } catch (IOException e) {
      return ""; // the attributes of a GID that is not set can't be read
    }
  }
}
