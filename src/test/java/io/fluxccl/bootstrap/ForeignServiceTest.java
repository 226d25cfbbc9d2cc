// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import static io.fluxccl.bootstrap.BootstrapContract.failureOf;
import static org.assertj.core.api.Assertions.assertThat;

import ch.qos.logback.classic.Level;
import ch.qos.logback.classic.Logger;
import ch.qos.logback.classic.spi.ILoggingEvent;
import ch.qos.logback.core.read.ListAppender;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.Timeout;
import io.fluxccl.bootstrap.BootstrapFrame.Greeting;
import io.fluxccl.bootstrap.BootstrapFrame.Hello;
import io.fluxccl.testing.Rounds;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.slf4j.LoggerFactory;

/** A rank that joins where another service listens. */
@org.junit.jupiter.api.Timeout(60)
class ForeignServiceTest {
  private final List<AutoCloseable> open = new CopyOnWriteArrayList<>();

  @AfterEach
  void close() throws Exception {
    for (AutoCloseable each : open) {
      each.close();
    }
  }

  private interface Service {
    void serve(Socket socket) throws IOException;
  }

  private String addressOf(Service service) throws IOException {
    ServerSocket listener = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
    open.add(listener);
    Thread thread =
        new Thread(
            () -> {
              try {
                while (true) {
                  Socket socket = listener.accept();
                  open.add(socket);
                  service.serve(socket);
                }
              } catch (IOException e) {
                // The test has ended.
              }
            },
            "foreign-service");
    thread.setDaemon(true);
    thread.start();
    return "127.0.0.1:" + listener.getLocalPort();
  }

  private static FluxCclException join(String address, Duration timeout) {
    BootstrapOptions options = BootstrapOptions.builder().timeout(timeout).build();
    try (TcpBootstrap rank = TcpBootstrap.create(1, 2, options)) {
      return failureOf(rank.initialize(address));
    }
  }

  private static Service saying(byte[] bytes) {
    return socket -> socket.getOutputStream().write(bytes);
  }

  @Test
  void shouldReportAForeignServiceBeforeTheTimeout() throws Exception {
    byte[] banner = "SSH-2.0-OpenSSH_9.6p1\r\n".getBytes(StandardCharsets.US_ASCII);
    String address = addressOf(saying(banner));
    assertThat(join(address, Duration.ofSeconds(8)))
        .isInstanceOf(InvalidUsage.class)
        .hasMessageContaining("another service")
        .hasMessageContaining(address)
        .hasMessageContaining(
            "it does not speak FluxCCL's protocol (it sent \"SSH-2.0-OpenSSH_9.6p1\")");
  }

  @Test
  void shouldShowBytesThatAreNoText() throws Exception {
    byte[] bytes = {0x4a, 0, 0, 0, 0x0a, 0x38, 0x2e, 0x30, 0x2e, 0x33};
    assertThat(join(addressOf(saying(bytes)), Duration.ofSeconds(8)))
        .isInstanceOf(InvalidUsage.class)
        .hasMessageContaining("it sent 0x4a0000000a382e30)");
  }

  @Test
  void shouldReportAServiceThatAcceptsButDoesNotAnswer() throws Exception {
    // Under -Plong it exceeds the timeout of a single attempt.
    Duration limit = Duration.ofMillis(Rounds.of(2000, 6000));
    assertThat(join(addressOf(socket -> {}), limit))
        .isInstanceOf(Timeout.class)
        .hasMessageContaining("it accepts connections but does not answer")
        .hasMessageContaining("is another service at this port");
  }

  @Test
  void shouldReportAServiceThatAcceptsAndCloses() throws Exception {
    assertThat(join(addressOf(Socket::close), Duration.ofSeconds(2)))
        .isInstanceOf(Timeout.class)
        .hasMessageContaining("closes them without a greeting; is another service at this port?");
  }

  /** Returns a frame whose version is that of another release. */
  private static byte[] ofOtherVersion(BootstrapFrame frame) {
    byte[] bytes = TcpRanks.encode(frame);
    int version = Frames.LENGTH_BYTES + 1 + Integer.BYTES;
    bytes[version] ^= 0x40;
    return bytes;
  }

  @Test
  void shouldNotWaitForTheLimitIfTheRootHasAnotherVersion() throws Exception {
    byte[] greeting = ofOtherVersion(new Greeting(new byte[BootstrapFrameCodec.NONCE_BYTES]));
    assertThat(join(addressOf(saying(greeting)), Duration.ofSeconds(4)))
        .isInstanceOf(InvalidUsage.class)
        .hasMessageContaining("and this rank version " + BootstrapFrameCodec.VERSION)
        .hasMessageContaining("run the same version of FluxCCL on all ranks");
  }

  @Test
  void shouldNotWaitForTheLimitIfTheRootUsesTls() throws Exception {
    byte[] alert = {0x15, 3, 3, 0, 2, 2, 70};
    assertThat(join(addressOf(saying(alert)), Duration.ofSeconds(4)))
        .isInstanceOf(InvalidUsage.class)
        .hasMessageContaining("it uses TLS and this rank does not");
  }

  @Test
  void shouldLogAtTheRootThatARankHasAnotherVersion() throws Exception {
    Logger logger = (Logger) LoggerFactory.getLogger(Gate.class);
    ListAppender<ILoggingEvent> lines = new ListAppender<>();
    lines.start();
    logger.addAppender(lines);
    logger.setLevel(Level.DEBUG); // repeated lines within a minute are logged at debug level
    int port = TcpRanks.freePort();
    try (TcpBootstrap root = TcpBootstrap.create(0, 2, BootstrapOptions.defaults())) {
      root.initialize("127.0.0.1:" + port);
      try (Socket rank = knock(port)) {
        rank.getOutputStream().write(ofOtherVersion(new Hello()));
        rank.getInputStream().readAllBytes(); // until the root has closed it
      }
    } finally {
      logger.detachAppender(lines);
      logger.setLevel(null);
    }
    assertThat(lines.list)
        .extracting(ILoggingEvent::getFormattedMessage)
        .anyMatch(line -> line.contains("run the same version of FluxCCL on all ranks"));
  }

  private static Socket knock(int port) throws IOException {
    while (true) {
      Socket socket = new Socket();
      try {
        socket.connect(new InetSocketAddress(InetAddress.getLoopbackAddress(), port), 10_000);
        socket.setSoTimeout(20_000);
        return socket;
      } catch (IOException e) {
        socket.close(); // the root does not listen yet
      }
    }
  }
}
