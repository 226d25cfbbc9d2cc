package io.fluxccl.bootstrap;

import io.fluxccl.InvalidUsage;
import java.io.IOException;
import java.net.Inet4Address;
import java.net.InetAddress;
import java.net.NetworkInterface;
import java.util.Collections;
import java.util.List;

/** Which of this host's addresses to use. */
final class NetworkAddresses {
  private static final List<String> VIRTUAL = List.of("docker", "br-", "veth", "virbr", "cni");

  private NetworkAddresses() {}

  /** The address of a network interface by name, IPv4 before IPv6. */
  static InetAddress ofInterface(String name) {
    try {
      NetworkInterface found = NetworkInterface.getByName(name);
      if (found == null) {
        throw new InvalidUsage(
            "interface=" + name + " is not there; this host has " + interfaceNames());
      }
      InetAddress address = firstOf(found);
      if (address == null) {
        throw new InvalidUsage("interface=" + name + " has no IP address");
      }
      return address;
    } catch (IOException e) {
      throw new InvalidUsage("interface=" + name + " can't be asked for its address: " + e, e);
    }
  }

  /** An address by which other hosts probably reach this one; loopback when there is none. */
  static InetAddress reachable() {
    try {
      InetAddress ipv6 = null;
      for (NetworkInterface each : Collections.list(NetworkInterface.getNetworkInterfaces())) {
        if (!each.isUp() || each.isLoopback() || isVirtual(each.getName())) {
          continue;
        }
        InetAddress address = firstOf(each);
        if (address instanceof Inet4Address) {
          return address;
        }
        ipv6 = ipv6 == null && address != null && !address.isLinkLocalAddress() ? address : ipv6;
      }
      return ipv6 != null ? ipv6 : InetAddress.getLoopbackAddress();
    } catch (IOException e) {
      return InetAddress.getLoopbackAddress();
    }
  }

  private static InetAddress firstOf(NetworkInterface networkInterface) {
    InetAddress first = null;
    for (InetAddress address : Collections.list(networkInterface.getInetAddresses())) {
      if (address instanceof Inet4Address) {
        return address;
      }
      if (first == null || first.isLinkLocalAddress()) {
        first = address;
      }
    }
    return first;
  }

  private static boolean isVirtual(String name) {
    return VIRTUAL.stream().anyMatch(name::startsWith);
  }

  private static String interfaceNames() throws IOException {
    StringBuilder names = new StringBuilder();
    for (NetworkInterface each : Collections.list(NetworkInterface.getNetworkInterfaces())) {
      names.append(names.length() == 0 ? "" : ", ").append(each.getName());
    }
    return names.toString();
  }
}
