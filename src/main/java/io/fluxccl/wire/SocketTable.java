// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.wire;

import io.fluxccl.Text;
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
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;

/**
 * Reads the kernel's tables of the TCP sockets of this network namespace, which list the sockets of
 * all users and processes.
 */
public final class SocketTable {
  private static final List<Path> TABLES =
      List.of(Path.of("/proc/net/tcp6"), Path.of("/proc/net/tcp"));
  private static final int LOCAL = 1;
  private static final int REMOTE = 2;
  private static final int REPEATED = 6;
  private static final int USER = 7;
  private static final int PROBES = 8;
  private static final int HEX = 16;

  /** The prefix of an IPv4 address in the table for IPv6. */
  private static final String MAPPED = word(0) + word(0) + word(0xffff);

  private static final int IPV4_LENGTH = "0100007F:1F90".length();

  /** The questions that the next reading of the tables answers. Guarded by itself. */
  private static final List<Question> QUESTIONS = new ArrayList<>();

  /**
   * A socket.
   *
   * @param user the id of the user that owns it
   * @param unanswered how often the kernel has repeated data, or a probe of the peer's full buffer,
   *     since the peer's system acknowledged something
   */
  public record Row(String user, int unanswered) {}

  private record Question(Set<String> keys, CompletableFuture<Map<String, Row>> rows) {}

  private SocketTable() {}

  /** Returns the key of a socket's row. */
  public static String key(SocketAddress local, SocketAddress remote) {
    return text((InetSocketAddress) local) + text((InetSocketAddress) remote);
  }

  /**
   * Finds sockets. Reading the tables takes milliseconds, so a thread of the executor does it, once
   * for all callers that wait for it.
   *
   * @param keys the keys of the sockets
   * @param executor runs tasks that may block, on other threads. If it throws, no reading is begun
   * @return the rows of the sockets that the kernel lists, by key; there may be others
   */
  public static CompletableFuture<Map<String, Row>> find(Set<String> keys, Executor executor) {
    Question question = new Question(keys, new CompletableFuture<>());
    synchronized (QUESTIONS) {
      if (QUESTIONS.isEmpty()) {
        executor.execute(SocketTable::answer); // if it throws, no later question waits for it
      }
      QUESTIONS.add(question);
    }
    return question.rows;
  }

  private static synchronized void answer() {
    List<Question> asked;
    synchronized (QUESTIONS) {
      asked = List.copyOf(QUESTIONS); // later ones need a later reading
      QUESTIONS.clear();
    }
    Set<String> keys = new HashSet<>();
    asked.forEach(question -> keys.addAll(question.keys));
    Map<String, Row> rows = read(keys, TABLES);
    asked.forEach(question -> question.rows.complete(rows));
  }

  /** Reads the rows with those keys. Blocks. */
  public static Map<String, Row> read(Set<String> keys, List<Path> tables) {
    Map<String, Row> rows = new HashMap<>();
    for (Path table : tables) {
      try (BufferedReader lines = Files.newBufferedReader(table, StandardCharsets.US_ASCII)) {
        lines.readLine(); // the titles of the columns
        String line;
        while ((line = lines.readLine()) != null) {
          String[] fields = line.strip().split(" +", PROBES + 2);
          String key = fields.length > PROBES ? mapped(fields[LOCAL]) + mapped(fields[REMOTE]) : "";
          if (keys.contains(key)) {
            int unanswered =
                Integer.parseInt(fields[REPEATED], HEX) + Integer.parseInt(fields[PROBES]);
            rows.put(key, new Row(fields[USER], unanswered));
          }
        }
      } catch (IOException | NumberFormatException e) {
        // No such family here, or not these columns: then no row of the table counts.
        continue;
      }
    }
    return rows;
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
