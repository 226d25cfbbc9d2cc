package io.fluxccl.netplugin.tcp;

import io.fluxccl.FluxCclException;
import io.fluxccl.TransportFailure;
import io.fluxccl.netplugin.NetProperties;
import io.fluxccl.netplugin.PointerType;
import java.io.IOException;
import java.net.Inet4Address;
import java.net.Inet6Address;
import java.net.InetAddress;
import java.net.NetworkInterface;
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
 * @param speedMbps the speed that the options set or the interface reports, else {@link
 *     #UNKNOWN_SPEED_MBPS}; in 10^6 bits per second
 * @param pciPath the device's folder below {@code /sys}, or null for a virtual interface
 */
record TcpDevice(String name, InetAddress address, int speedMbps, String pciPath) {
  /** The speed assumed for an interface that does not report one: 10 Gbit/s. */
  static final int UNKNOWN_SPEED_MBPS = 10_000;

  private static final int MAX_DEVICES = 16;
  private static final int MAX_COMMS = 65536;
  // Unknown: NCCL then uses its own figures for each of its protocols. One number for all of them
  // would hide which protocol is the best for short messages.
  private static final float LATENCY_MICROS = 0;
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
          String.format(
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
    Path folder = Path.of("/sys/class/net", each.getName());
    int speed = options.speedMbps() > 0 ? options.speedMbps() : speedOf(folder);
    found.add(new TcpDevice(each.getName(), address, speed, pciPathOf(folder)));
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
   * Returns the interface's speed. Reading it fails, or gives -1, if the interface is virtual or
   * has no cable.
   */
  private static int speedOf(Path folder) {
    try {
      int speed = Integer.parseInt(Files.readString(folder.resolve("speed")).trim());
      return speed > 0 ? speed : UNKNOWN_SPEED_MBPS;
    } catch (IOException | NumberFormatException e) {
      return UNKNOWN_SPEED_MBPS;
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
        pciPath,
        index,
        Set.of(PointerType.HOST),
        false,
        false,
        speedMbps,
        0,
        LATENCY_MICROS,
        MAX_COMMS,
        1,
        MAX_BYTES);
  }
}
