// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.tcp;

import io.fluxccl.FluxCclException;
import io.fluxccl.Text;
import io.fluxccl.TransportFailure;
import io.fluxccl.netplugin.NetProperties;
import io.fluxccl.netplugin.PointerType;
import java.io.IOException;
import java.net.Inet4Address;
import java.net.Inet6Address;
import java.net.InetAddress;
import java.net.NetworkInterface;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Comparator;
import java.util.List;
import java.util.Set;

/**
 * A network interface that is a device of the plugin.
 *
 * @param name the system's name of the interface
 * @param address the address that its listeners use
 * @param link the interface's properties, from the options and the system
 */
record TcpDevice(String name, InetAddress address, Link link) {
  /**
   * The properties that NCCL plans by.
   *
   * @param speedMbps the speed that the options set or the interface reports, else {@link
   *     #UNKNOWN_SPEED_MBPS}; in 10^6 bits per second
   * @param port the port of the network card, from 0
   * @param latencyMicros the latency that the options set, or 0. The system does not know it, and a
   *     measurement would differ between ranks, which have to choose the same algorithms
   * @param pciPath the device's folder below {@code /sys}, or null for a virtual interface
   */
  record Link(int speedMbps, int port, float latencyMicros, String pciPath) {
    /** Reads the system's description of an interface. */
    static Link of(String name, Path interfaces, TcpOptions options) {
      Path folder = interfaces.resolve(name);
      int speed = options.speedMbps() > 0 ? options.speedMbps() : speedOf(folder, interfaces);
      return new Link(
          speed,
          Math.max(0, number(folder, "dev_port")),
          options.latencyMicros(),
          pciPathOf(folder));
    }
  }

  private static final Path INTERFACES = Path.of("/sys/class/net");

  /** The speed assumed for an interface that does not report one: 10 Gbit/s. */
  static final int UNKNOWN_SPEED_MBPS = 10_000;

  /** The beginning of the names by which an interface's folder names those below it. */
  private static final String LOWER = "lower_";

  private static final int MAX_DEVICES = 16;
  private static final int MAX_COMMS = 65536;
  private static final long MAX_BYTES = 1L << 40;

  /**
   * Returns the interfaces that are up and selected, in the order of their numbers. Returns
   * loopback if there is no other interface and no list of interfaces was given.
   *
   * @throws TransportFailure if there is no usable interface
   */
  static List<TcpDevice> find(TcpOptions options) {
    List<NetworkInterface> all;
    try {
      all = new ArrayList<>(Collections.list(NetworkInterface.getNetworkInterfaces()));
    } catch (IOException e) {
      throw new TransportFailure(
          FluxCclException.NO_RANK, "the network interfaces can't be listed: " + e, e);
    }
    all.sort(Comparator.comparingInt(NetworkInterface::getIndex));
    List<TcpDevice> found = new ArrayList<>();
    for (NetworkInterface each : all) {
      if (options.interfaces().wants(each.getName())) {
        add(each, options, found);
      }
    }
    if (found.isEmpty() && options.interfaces().isDefault()) {
      all.forEach(each -> add(each, options, found));
    }
    if (found.isEmpty()) {
      throw new TransportFailure(
          FluxCclException.NO_RANK,
          Text.of(
              "no network interface is up, has an address of the wanted family and matches"
                  + " %s; this host has %s",
              options.interfaces(), all.stream().map(NetworkInterface::getName).toList()));
    }
    return List.copyOf(found.subList(0, Math.min(found.size(), MAX_DEVICES)));
  }

  private static void add(NetworkInterface each, TcpOptions options, List<TcpDevice> found) {
    InetAddress address = addressOf(each, options);
    if (address == null) {
      return;
    }
    found.add(new TcpDevice(each.getName(), address, Link.of(each.getName(), INTERFACES, options)));
  }

  /** Returns a device of a given address, with what is known of the interface that has it. */
  static TcpDevice at(InetAddress address, TcpOptions options) {
    String name = address.getHostAddress();
    try {
      NetworkInterface found = NetworkInterface.getByInetAddress(address);
      name = found == null ? name : found.getName();
    } catch (IOException e) {
      // The interface then has no known properties.
      return new TcpDevice(name, address, Link.of("", INTERFACES, options));
    }
    return new TcpDevice(address.getHostAddress(), address, Link.of(name, INTERFACES, options));
  }

  private static InetAddress addressOf(NetworkInterface each, TcpOptions options) {
    try {
      if (!each.isUp()) {
        return null;
      }
    } catch (IOException e) {
      return null;
    }
    InetAddress best = null;
    for (InetAddress address : Collections.list(each.getInetAddresses())) {
      if (address instanceof Inet4Address && options.family() != TcpOptions.Family.IPV6) {
        return address;
      }
      // Another host can't use a link-local address.
      if (best == null
          && address instanceof Inet6Address
          && options.family() != TcpOptions.Family.IPV4
          && !address.isLinkLocalAddress()) {
        best = address;
      }
    }
    return best;
  }

  /**
   * Returns the interface's speed, or the sum of those below it. The system reports none for an
   * interface that is virtual or has no cable.
   */
  private static int speedOf(Path folder, Path interfaces) {
    int speed = number(folder, "speed");
    if (speed > 0) {
      return speed;
    }
    int sum = 0;
    try (DirectoryStream<Path> lower = Files.newDirectoryStream(folder, LOWER + "*")) {
      for (Path each : lower) {
        String name = each.getFileName().toString().substring(LOWER.length());
        sum += Math.max(0, number(interfaces.resolve(name), "speed"));
      }
    } catch (IOException e) {
      return UNKNOWN_SPEED_MBPS;
    }
    return sum > 0 ? sum : UNKNOWN_SPEED_MBPS;
  }

  /** Returns a number that the system reports for an interface, or -1. */
  private static int number(Path folder, String file) {
    try {
      return Integer.parseInt(Files.readString(folder.resolve(file)).trim());
    } catch (IOException | NumberFormatException e) {
      return -1;
    }
  }

  private static String pciPathOf(Path folder) {
    try {
      return folder.resolve("device").toRealPath().toString();
    } catch (IOException e) {
      return null;
    }
  }

  NetProperties properties(int index) {
    return new NetProperties(
        name,
        link.pciPath(),
        index,
        Set.of(PointerType.HOST),
        false,
        false,
        link.speedMbps(),
        link.port(),
        link.latencyMicros(),
        MAX_COMMS,
        TcpComm.MAX_GROUP,
        MAX_BYTES);
  }
}
