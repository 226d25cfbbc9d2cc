// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import static org.assertj.core.api.Assertions.assertThat;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.fluxccl.bootstrap.Handshake.SocketOwners;
import io.fluxccl.wire.SocketTable;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

@Timeout(60)
class SocketOwnersTest {
  private static final String REST = " 01 00000000:00000000 00:00000000 00000000 ";

  @TempDir Path folder;

  @ParameterizedTest
  @ValueSource(strings = {"127.0.0.1", "127.0.0.2", "::1"})
  void shouldFindBothEndsOfAConnectionOfThisUser(String host) throws IOException {
    InetAddress address = InetAddress.getByName(host);
    try (ServerSocket listener = bound(address);
        Socket one = new Socket(address, listener.getLocalPort());
        Socket other = listener.accept()) {
      assertThat(isOfAnotherUser(one)).isFalse();
      assertThat(isOfAnotherUser(other)).isFalse();
    }
  }

  private static boolean isOfAnotherUser(Socket socket) {
    return SocketOwners.differ(socket.getLocalSocketAddress(), socket.getRemoteSocketAddress())
        .join();
  }

  private static ServerSocket bound(InetAddress address) throws IOException {
    try {
      return new ServerSocket(0, 1, address);
    } catch (IOException e) {
      assumeTrue(false, address + " is not here: " + e);
      throw e;
    }
  }

  @Test
  void shouldFindTheConnectionOfAnotherUser() throws Exception {
    boolean root = Files.getAttribute(Path.of("/proc/self"), "unix:uid").equals(0);
    assumeTrue(root && Files.exists(Path.of("/usr/bin/setpriv")), "needs root and setpriv");
    InetAddress loopback = InetAddress.getLoopbackAddress();
    try (ServerSocket listener = new ServerSocket(0, 1, loopback)) {
      String connect = "exec 3<>/dev/tcp/127.0.0.1/" + listener.getLocalPort() + "; read <&3";
      Process other =
          new ProcessBuilder(
                  "/usr/bin/setpriv", "--reuid", "65534", "--clear-groups", "bash", "-c", connect)
              .inheritIO()
              .start();
      try (Socket accepted = listener.accept()) {
        assertThat(isOfAnotherUser(accepted)).isTrue();
      } finally {
        other.destroyForcibly().waitFor();
      }
    }
  }

  @Test
  void shouldTrustOnlySocketEntriesOfBothEnds() throws IOException {
    assumeTrue(ByteOrder.nativeOrder() == ByteOrder.LITTLE_ENDIAN, "as the entries here");
    String here = "0100007F:1F90";
    String there = "0100007F:A001";
    assertThat(ofOneUser(entry(here, there, 7), entry(there, here, 7))).isTrue();
    assertThat(ofOneUser(entry(here, there, 7), entry(there, here, 8))).isFalse();
    assertThat(ofOneUser(entry(here, there, 7))).isFalse();
    // Equal ports at another loopback address.
    assertThat(ofOneUser(entry(here, there, 7), entry("0200007F:A001", here, 7))).isFalse();
    assertThat(ofOneUser()).isFalse();
  }

  @Test
  void shouldAskOnlyAboutTheLoopback() {
    InetSocketAddress far = new InetSocketAddress("10.0.0.1", 5);
    assertThat(SocketOwners.differ(far, far).join()).isFalse();
  }

  private static String entry(String local, String remote, int user) {
    return "   3: " + local + " " + remote + REST + user + " 0 12345 1";
  }

  private boolean ofOneUser(String... entries) throws IOException {
    Path table = folder.resolve("tcp");
    Files.writeString(table, "  sl  local_address rem_address st\n" + String.join("\n", entries));
    InetSocketAddress here = new InetSocketAddress("127.0.0.1", 8080);
    InetSocketAddress there = new InetSocketAddress("127.0.0.1", 0xa001);
    String own = SocketTable.key(here, there);
    String other = SocketTable.key(there, here);
    Map<String, SocketTable.Row> rows =
        SocketTable.read(Set.of(own, other), List.of(table, folder.resolve("absent")));
    return !SocketOwners.differ(rows.get(own), rows.get(other));
  }
}
