// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.wire;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Set;
import java.util.concurrent.Executor;
import java.util.concurrent.ForkJoinPool;
import java.util.concurrent.RejectedExecutionException;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class SocketTableTest {
  private static final String KEY =
      SocketTable.key(
          new InetSocketAddress("127.0.0.1", 8080), new InetSocketAddress("127.0.0.1", 0xa001));

  @TempDir Path folder;

  private SocketTable.Row read(String columns) throws IOException {
    assumeTrue(ByteOrder.nativeOrder() == ByteOrder.LITTLE_ENDIAN, "as the entries here");
    Path table = folder.resolve("tcp");
    Files.writeString(table, "  sl  local_address\n   3: 0100007F:1F90 0100007F:A001 " + columns);
    return SocketTable.read(Set.of(KEY), List.of(folder.resolve("absent"), table)).get(KEY);
  }

  /** Data is repeated after a time-out; the peer's full buffer is probed. */
  @ParameterizedTest
  @CsvSource({
    "01 00000000:00000000 00:00000000 00000000, 0, 0",
    "01 00000400:00000000 01:00000014 0000000C, 0, 12",
    "01 00000400:00000000 04:00000014 00000000, 3, 3"
  })
  void shouldCountRepetitionsThatThePeersSystemDidNotAcknowledge(
      String columns, int probes, int unanswered) throws IOException {
    SocketTable.Row row = read(columns + "  1000        " + probes + " 12345 1 ff 20 4 30 10 -1");
    assertThat(row).isEqualTo(new SocketTable.Row("1000", unanswered));
  }

  @ParameterizedTest
  @CsvSource({"01", "01 0:0 0:0 what 1000 0 12345", "''"})
  void shouldLeaveOutRowsThatItCannotRead(String columns) throws IOException {
    assertThat(read(columns)).isNull();
  }

  @Test
  void shouldAnswerQuestionsAfterATaskWasRefused() {
    Executor full =
        task -> {
          throw new RejectedExecutionException("no thread");
        };
    assertThatThrownBy(() -> SocketTable.find(Set.of(KEY), full)).hasMessage("no thread");
    assertThat(SocketTable.find(Set.of(KEY), ForkJoinPool.commonPool()))
        .succeedsWithin(Duration.ofSeconds(30));
  }

  @Test
  void shouldFindSocketsOfThisProcess() throws IOException {
    InetAddress loopback = InetAddress.getLoopbackAddress();
    try (ServerSocket listener = new ServerSocket(0, 1, loopback);
        Socket socket = new Socket(loopback, listener.getLocalPort())) {
      String key = SocketTable.key(socket.getLocalSocketAddress(), socket.getRemoteSocketAddress());
      SocketTable.Row row =
          SocketTable.find(Set.of(key), ForkJoinPool.commonPool()).join().get(key);
      assertThat(row.unanswered()).isZero();
    }
  }
}
