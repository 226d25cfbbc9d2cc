// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import io.fluxccl.Text;
import io.fluxccl.concurrent.BlockingTasks;
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
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;

/**
 * Finds the users that own the two ends of a loopback connection. The kernel lists all sockets of
 * this network namespace with their owners. So this needs no shared file and no statement of the
 * other side, and works between containers that share the loopback.
 */
final class SocketOwners {
  private static final List<Path> TABLES =
      List.of(Path.of("/proc/net/tcp6"), Path.of("/proc/net/tcp"));
  private static final int LOCAL = 1;
  private static final int REMOTE = 2;
  private static final int USER = 7;

  /** The prefix of an IPv4 address in the table for IPv6. */
  private static final String MAPPED = word(0) + word(0) + word(0xffff);

  private static final int IPV4_LENGTH = "0100007F:1F90".length();

  /** The ends of connections that this process holds; those of ranks of one JVM are both here. */
  private static final Set<Ends> OWN = ConcurrentHashMap.newKeySet();

  /** Guarded by itself: the questions that the next reading of the tables answers. */
  private static final List<Question> QUESTIONS = new ArrayList<>();

  private record Ends(SocketAddress own, SocketAddress other) {}

  /** Whether a connection's ends, as the kernel's tables show them, belong to different users. */
  record Question(String own, String other, CompletableFuture<Boolean> differ) {
    static Question of(InetSocketAddress own, InetSocketAddress other) {
      return new Question(text(own), text(other), new CompletableFuture<>());
    }

    void answer(Map<String, String> users) {
      String owner = users.get(own + other);
      differ.complete(owner == null || !owner.equals(users.get(other + own)));
    }
  }

  private SocketOwners() {}

  /** Records a connection of this process until it is closed. */
  static void opened(Channel channel) {
    Ends ends = new Ends(channel.localAddress(), channel.remoteAddress());
    OWN.add(ends);
    channel.closeFuture().addListener(closed -> OWN.remove(ends));
  }

  /**
   * Returns whether a connection is one of the loopback whose ends belong to different users, or to
   * users that the kernel does not list. Reading the kernel's tables takes milliseconds, so another
   * thread does it, once for all connections that wait for it: many that connect at once do not
   * delay the caller.
   *
   * @param local address of this process's end
   * @param remote address of the other end
   * @return completes at once if the tables need not be read, or else on a thread that may block
   */
  static CompletableFuture<Boolean> differ(SocketAddress local, SocketAddress remote) {
    InetSocketAddress here = (InetSocketAddress) local;
    InetSocketAddress there = (InetSocketAddress) remote;
    if (!there.getAddress().isLoopbackAddress() || OWN.contains(new Ends(remote, local))) {
      return CompletableFuture.completedFuture(false);
    }
    Question question = Question.of(here, there);
    boolean isFirst;
    synchronized (QUESTIONS) {
      isFirst = QUESTIONS.isEmpty();
      QUESTIONS.add(question);
    }
    if (isFirst) {
      BlockingTasks.EXECUTOR.execute(SocketOwners::answer);
    }
    return question.differ;
  }

  private static synchronized void answer() {
    List<Question> asked;
    synchronized (QUESTIONS) {
      asked = List.copyOf(QUESTIONS); // later ones need a later reading
      QUESTIONS.clear();
    }
    answer(asked, TABLES);
  }

  static void answer(List<Question> asked, List<Path> tables) {
    Map<String, String> users = new HashMap<>();
    asked.forEach(
        question -> {
          users.put(question.own + question.other, null);
          users.put(question.other + question.own, null);
        });
    tables.forEach(table -> read(table, users));
    asked.forEach(question -> question.answer(users));
  }

  /** Sets the owners of those sockets in the table whose two addresses are keys. */
  private static void read(Path table, Map<String, String> users) {
    try (BufferedReader lines = Files.newBufferedReader(table, StandardCharsets.US_ASCII)) {
      lines.readLine(); // the titles of the columns
      String line;
      while ((line = lines.readLine()) != null) {
        String[] fields = line.strip().split(" +", USER + 2);
        String key = fields.length > USER ? mapped(fields[LOCAL]) + mapped(fields[REMOTE]) : "";
        if (users.containsKey(key)) {
          users.put(key, fields[USER]);
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
    return text.append(Text.of(":%04X", address.getPort())).toString();
  }

  /** Returns four bytes in network order as the kernel shows them: a number of this machine. */
  private static String word(int networkOrder) {
    boolean little = ByteOrder.nativeOrder() == ByteOrder.LITTLE_ENDIAN;
    return Text.of("%08X", little ? Integer.reverseBytes(networkOrder) : networkOrder);
  }
}
