// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import static io.fluxccl.bootstrap.TcpRanks.failureOfJoining;
import static io.fluxccl.bootstrap.TcpRanks.knock;
import static io.fluxccl.bootstrap.TcpRanks.loopback;
import static org.assertj.core.api.Assertions.assertThat;

import ch.qos.logback.classic.Level;
import ch.qos.logback.classic.Logger;
import ch.qos.logback.classic.spi.ILoggingEvent;
import ch.qos.logback.core.read.ListAppender;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.Timeout;
import io.fluxccl.bootstrap.BootstrapFrame.Admission;
import io.fluxccl.bootstrap.BootstrapFrame.Greeting;
import io.fluxccl.bootstrap.BootstrapFrame.Hello;
import io.fluxccl.bootstrap.BootstrapFrame.Verdict;
import io.fluxccl.bootstrap.TcpRanks.ForeignService;
import io.fluxccl.bootstrap.TcpRanks.ForeignService.Answer;
import io.fluxccl.testing.Ports;
import io.fluxccl.testing.Rounds;
import java.io.DataInputStream;
import java.io.IOException;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.concurrent.atomic.AtomicInteger;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import org.slf4j.LoggerFactory;

/** A rank that joins where another service listens. */
@org.junit.jupiter.api.Timeout(60)
class ForeignServiceTest {
  private static void assertJoiningFails(
      Answer answer, long millis, Class<? extends FluxCclException> type, String... message)
      throws IOException {
    try (ForeignService service = new ForeignService(answer)) {
      FluxCclException failure = failureOfJoining(service.address(), Duration.ofMillis(millis));
      assertThat(failure).isInstanceOf(type).hasMessageContainingAll(message);
      assertThat(failure).hasMessageContaining(service.address());
    }
  }

  private static Answer saying(byte[] bytes) {
    return client -> client.getOutputStream().write(bytes);
  }

  /** Returns a frame whose version is that of another release. */
  private static byte[] ofOtherVersion(BootstrapFrame frame) {
    byte[] bytes = TcpRanks.encode(frame);
    int version = Frames.LENGTH_BYTES + 1 + Integer.BYTES;
    bytes[version] ^= 0x40;
    return bytes;
  }

  @Test
  void shouldReportAForeignServiceBeforeTheTimeout() throws Exception {
    byte[] banner = "SSH-2.0-OpenSSH_9.6p1\r\n".getBytes(StandardCharsets.US_ASCII);
    assertJoiningFails(
        saying(banner),
        8_000,
        InvalidUsage.class,
        "another service",
        "it does not speak FluxCCL's protocol (it sent \"SSH-2.0-OpenSSH_9.6p1\")");
  }

  @Test
  void shouldShowBytesThatAreNoText() throws Exception {
    byte[] bytes = {0x4a, 0, 0, 0, 0x0a, 0x38, 0x2e, 0x30, 0x2e, 0x33};
    assertJoiningFails(saying(bytes), 8_000, InvalidUsage.class, "it sent 0x4a0000000a382e30)");
  }

  @Test
  void shouldReportAServiceThatAcceptsButDoesNotAnswer() throws Exception {
    assertJoiningFails(
        client -> {},
        Rounds.of(2000, 6000), // under -Plong it exceeds the timeout of a single attempt
        Timeout.class,
        "it accepts connections but does not answer",
        "is another service at this port");
  }

  private static void assertIsReportedAsClosing(Answer answer) throws IOException {
    String message = "closes them without a greeting; is another service at this port?";
    assertJoiningFails(answer, 2_000, Timeout.class, message);
  }

  @Test
  void shouldReportAServiceThatAcceptsAndCloses() throws Exception {
    assertIsReportedAsClosing(Socket::close);
  }

  /** A close resets the connection if the service has not read the whole hello. */
  @ParameterizedTest
  @ValueSource(booleans = {false, true})
  void shouldReportAServiceThatAcceptsAndResets(boolean hasHello) throws Exception {
    assertIsReportedAsClosing(
        client -> {
          if (hasHello) {
            client.getInputStream().read();
          }
          client.setSoLinger(true, 0);
          client.close();
        });
  }

  /** The last attempt has no answer yet. */
  @Test
  void shouldReportAServiceThatClosesIfTheLimitPassesDuringAnAttempt() throws Exception {
    AtomicInteger connections = new AtomicInteger();
    assertIsReportedAsClosing(
        client -> {
          if (connections.incrementAndGet() < 3) {
            client.close();
          }
        });
  }

  @Test
  void shouldTryAgainOnceAfterManyRefusals() throws Exception {
    AtomicInteger connections = new AtomicInteger();
    byte[] mac = new byte[BootstrapFrameCodec.MAC_BYTES];
    byte[] one = TcpRanks.encode(new Verdict(Admission.WRONG_SECRET, Links.NOWHERE, 0, 0, mac));
    byte[] many = ByteBuffer.allocate(3 * one.length).put(one).put(one).put(one).array();
    byte[] greeting = TcpRanks.encode(new Greeting(new byte[BootstrapFrameCodec.NONCE_BYTES]));
    Answer answer =
        client -> {
          connections.incrementAndGet();
          client.getOutputStream().write(greeting);
          DataInputStream in = new DataInputStream(client.getInputStream());
          in.readNBytes(in.readInt()); // the hello
          in.readNBytes(in.readInt()); // the proof
          client.getOutputStream().write(many);
        };
    assertJoiningFails(answer, 8_000, InvalidUsage.class, Handshake.SECRETS_DIFFER);
    assertThat(connections).hasValueLessThan(100);
  }

  @Test
  void shouldNotWaitForTheLimitIfTheRootHasAnotherVersion() throws Exception {
    assertJoiningFails(
        saying(ofOtherVersion(new Greeting(new byte[BootstrapFrameCodec.NONCE_BYTES]))),
        4_000,
        InvalidUsage.class,
        "and this rank version " + BootstrapFrameCodec.VERSION,
        "run the same version of FluxCCL on all ranks");
  }

  @Test
  void shouldNotWaitForTheLimitIfTheRootUsesTls() throws Exception {
    byte[] alert = {0x15, 3, 3, 0, 2, 2, 70};
    String message = "it uses TLS and this rank does not";
    assertJoiningFails(saying(alert), 4_000, InvalidUsage.class, message);
  }

  @Test
  void shouldLogAtTheRootThatARankHasAnotherVersion() throws Exception {
    Logger logger = (Logger) LoggerFactory.getLogger(Handshake.class);
    ListAppender<ILoggingEvent> lines = new ListAppender<>();
    lines.start();
    logger.addAppender(lines);
    logger.setLevel(Level.DEBUG); // repeated lines within a minute are logged at debug level
    int port = Ports.reserved();
    try (TcpBootstrap root = TcpBootstrap.create(0, 2, BootstrapOptions.defaults())) {
      root.initialize("127.0.0.1:" + port);
      Awaitility.await().ignoreExceptions().until(() -> !TcpRanks.missing(root).isEmpty());
      try (Socket rank = knock(loopback(port))) {
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
}
