package io.fluxccl.bootstrap;

import io.netty.channel.Channel;
import java.io.BufferedReader;
import java.io.IOException;
import java.net.Inet4Address;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/**
 * The users to whom the two ends of a loopback connection belong. The kernel lists all sockets of
 * this network namespace with their owners, so this needs neither a file that ranks share nor the
 * other side's word, and works between containers that share the loopback.
 */
final class SocketOwners {
  private static final List<Path> TABLES =
      List.of(Path.of("/proc/net/tcp6"), Path.of("/proc/net/tcp"));
  private static final int LOCAL = 1;
  private static final int REMOTE = 2;
  private static final int USER = 7;
  private static final int PORT_LENGTH = ":1F90".length();

  /** What stands before an IPv4 address in the table for IPv6. */
  private static final String MAPPED = word(0) + word(0) + word(0xffff);

  private static final int IPV4_LENGTH = "0100007F:1F90".length();

  /** The ends of connections that this process holds; those of ranks of one JVM are both here. */
  private static final Set<Ends> OWN = ConcurrentHashMap.newKeySet();

  private record Ends(SocketAddress own, SocketAddress other) {}

  private SocketOwners() {}

  /** Learns of a connection of this process, until it is closed. */
  static void opened(Channel channel) {
    Ends ends = new Ends(channel.localAddress(), channel.remoteAddress());
    OWN.add(ends);
    channel.closeFuture().addListener(closed -> OWN.remove(ends));
  }

  /**
   * Returns whether a connection is one of the loopback whose ends belong to different users, or to
   * users that the kernel does not list. Takes some milliseconds, unless this process has both
   * ends.
   *
   * @param local address of this process's end
   * @param remote address of the other end
   */
  static boolean differ(SocketAddress local, SocketAddress remote) {
    InetSocketAddress here = (InetSocketAddress) local;
    InetSocketAddress there = (InetSocketAddress) remote;
    return there.getAddress().isLoopbackAddress()
        && !OWN.contains(new Ends(remote, local))
        && !isOfOneUser(here, there, TABLES);
  }

  static boolean isOfOneUser(InetSocketAddress local, InetSocketAddress remote, List<Path> tables) {
    String own = text(local);
    String other = text(remote);
    Map<String, String> users = new HashMap<>();
    for (Path table : tables) {
      read(table, own, other, users);
      if (users.size() == 2) {
        return users.get(own).equals(users.get(other));
      }
    }
    return false;
  }

  /** Adds the owners of the sockets whose two ends are those, by their local address. */
  private static void read(Path table, String own, String other, Map<String, String> users) {
    try (BufferedReader lines = Files.newBufferedReader(table, StandardCharsets.US_ASCII)) {
      String line;
      while (users.size() < 2 && (line = lines.readLine()) != null) {
        if (!line.contains(own.substring(own.length() - PORT_LENGTH))) {
          continue;
        }
        String[] fields = line.strip().split(" +");
        String local = mapped(fields[LOCAL]);
        String remote = mapped(fields[REMOTE]);
        if (local.equals(own) && remote.equals(other)
            || local.equals(other) && remote.equals(own)) {
          users.put(local, fields[USER]);
        }
      }
    } catch (IOException e) {
      // No such family here: the other table has the connection, or none has.
    }
  }

  private static String mapped(String address) {
    return address.length() == IPV4_LENGTH ? MAPPED + address : address;
  }

  /** Returns an address as the kernel's tables for IPv6 show it. */
  private static String text(InetSocketAddress address) {
    ByteBuffer bytes = ByteBuffer.wrap(address.getAddress().getAddress());
    StringBuilder text =
        new StringBuilder(address.getAddress() instanceof Inet4Address ? MAPPED : "");
    while (bytes.hasRemaining()) {
      text.append(word(bytes.getInt()));
    }
    return text.append(String.format(":%04X", address.getPort())).toString();
  }

  /** Returns four bytes in network order as the kernel shows them: a number of this machine. */
  private static String word(int networkOrder) {
    boolean little = ByteOrder.nativeOrder() == ByteOrder.LITTLE_ENDIAN;
    return String.format("%08X", little ? Integer.reverseBytes(networkOrder) : networkOrder);
  }
}
