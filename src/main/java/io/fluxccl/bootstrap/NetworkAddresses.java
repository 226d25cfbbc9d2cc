// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import io.fluxccl.InvalidUsage;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.DatagramSocket;
import java.net.Inet4Address;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.NetworkInterface;
import java.util.Comparator;
import java.util.List;
import java.util.Optional;
import java.util.stream.Stream;

/** Chooses among this host's addresses. */
final class NetworkAddresses {
  private static final List<String> VIRTUAL = List.of("docker", "br-", "veth", "virbr", "cni");

  private static final int ANY_PORT = 9;

  private NetworkAddresses() {}

  /** Returns the address of a network interface by name, IPv4 before IPv6. */
  static InetAddress ofInterface(String name) {
    try {
      NetworkInterface found = NetworkInterface.getByName(name);
      if (found == null) {
        throw InvalidUsage.of(
            "interface=%s is not there; this host has %s",
            name, NetworkInterface.networkInterfaces().map(NetworkInterface::getName).toList());
      }
      return firstOf(Stream.of(found))
          .orElseThrow(() -> InvalidUsage.of("interface=%s has no IP address", name));
    } catch (IOException e) {
      throw new InvalidUsage("interface=" + name + " can't be asked for its address: " + e, e);
    }
  }

  /** Returns an address by which other hosts probably reach this one; loopback if there is none. */
  static InetAddress reachable() {
    try {
      return firstOf(NetworkInterface.networkInterfaces().filter(NetworkAddresses::isReachable))
          .filter(address -> !address.isLinkLocalAddress() || address instanceof Inet4Address)
          .orElseGet(InetAddress::getLoopbackAddress);
    } catch (IOException e) {
      return InetAddress.getLoopbackAddress();
    }
  }

  /** Returns the local address from which packets to another address are sent. */
  static InetAddress towards(InetSocketAddress to) {
    if (to.getAddress().isLoopbackAddress()) {
      return to.getAddress();
    }
    try (DatagramSocket socket = new DatagramSocket()) {
      socket.connect(to.getAddress(), ANY_PORT); // sends nothing
      return socket.getLocalAddress();
    } catch (IOException | UncheckedIOException e) {
      return reachable();
    }
  }

  /** Returns the first IPv4 address, or else the first IPv6 address, link-local ones last. */
  private static Optional<InetAddress> firstOf(Stream<NetworkInterface> interfaces) {
    return interfaces
        .flatMap(NetworkInterface::inetAddresses)
        .min(
            Comparator.comparing((InetAddress address) -> !(address instanceof Inet4Address))
                .thenComparing(InetAddress::isLinkLocalAddress));
  }

  private static boolean isReachable(NetworkInterface each) {
    try {
      return each.isUp()
          && !each.isLoopback()
          && VIRTUAL.stream().noneMatch(each.getName()::startsWith);
    } catch (IOException e) {
      return false;
    }
  }
}
