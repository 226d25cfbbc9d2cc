// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.Deadline;
import io.fluxccl.DeviceFailure;
import io.fluxccl.testing.RequiresNativeLibrary;
import io.fluxccl.testing.TestJvms;
import io.fluxccl.testkit.ProcessRank;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.stream.Stream;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@RequiresNativeLibrary
@Timeout(60)
class DescriptorServerTest {
  private static final int CLIENT_TIMEOUT_MILLIS = 300;
  private static final int HOUR_MILLIS = 3_600_000;

  private final DescriptorServer server = new DescriptorServer(CLIENT_TIMEOUT_MILLIS);

  private static Deadline within(int millis) {
    return Deadline.after(Duration.ofMillis(millis));
  }

  private static int request(DescriptorServer.Offer offer) {
    return DescriptorClient.request(offer.socketName(), offer.token(), within(10_000));
  }

  private static byte[] name(DescriptorServer.Offer offer) {
    return offer.socketName().getBytes(StandardCharsets.UTF_8);
  }

  private static boolean isReadable(int descriptor, int timeoutMillis) {
    boolean[] readable = new boolean[1];
    DescriptorCalls.awaitReadable(new int[] {descriptor}, readable, 1, timeoutMillis);
    return readable[0];
  }

  /** Asks for a descriptor that is an event, and signals it. */
  static final class Client {
    public static void main(String[] args) {
      int event =
          DescriptorClient.request(args[0], HexFormat.of().parseHex(args[1]), within(10_000));
      DescriptorCalls.signalEvent(event);
      System.out.println("signalled");
    }
  }

  /** Offers an event until it is killed. */
  static final class Owner {
    public static void main(String[] args) throws InterruptedException {
      DescriptorServer.Offer offer = DescriptorServer.PROCESS.offer(DescriptorCalls.newEvent());
      System.out.println(offer.socketName());
      System.out.println(HexFormat.of().formatHex(offer.token()));
      Thread.sleep(60_000);
    }
  }

  @Test
  void shouldSendTheDescriptorOfTheRequestedToken() {
    int first = DescriptorCalls.newEvent();
    int second = DescriptorCalls.newEvent();
    try (DescriptorServer.Offer firstOffer = server.offer(first);
        DescriptorServer.Offer secondOffer = server.offer(second)) {
      assertThat(secondOffer.socketName()).isEqualTo(firstOffer.socketName());
      int got = request(secondOffer);
      assertThat(got).isNotEqualTo(second);
      DescriptorCalls.signalEvent(got);
      assertThat(isReadable(second, 10_000)).isTrue();
      assertThat(isReadable(first, 0)).isFalse();
      DescriptorCalls.close(got);
    }
  }

  @Test
  @Tag("multiprocess")
  void shouldSendADescriptorToAnotherProcess() throws Exception {
    int event = DescriptorCalls.newEvent();
    try (DescriptorServer.Offer offer = server.offer(event);
        ProcessRank client =
            TestJvms.start(
                Client.class, offer.socketName(), HexFormat.of().formatHex(offer.token()))) {
      assertThat(client.readLine()).isEqualTo("signalled");
      assertThat(isReadable(event, 10_000)).isTrue();
    }
  }

  @Test
  @Tag("multiprocess")
  void shouldReportThatNoProcessListensIfTheOwnerWasKilled() throws Exception {
    try (ProcessRank owner = TestJvms.start(Owner.class)) {
      String socketName = owner.readLine();
      byte[] token = HexFormat.of().parseHex(owner.readLine());
      assertThat(socketName).startsWith("fluxccl-" + owner.pid() + "-");
      DescriptorCalls.close(DescriptorClient.request(socketName, token, within(10_000)));

      owner.kill();

      assertThatThrownBy(() -> DescriptorClient.request(socketName, token, within(10_000)))
          .isInstanceOf(DeviceFailure.class)
          .hasMessageContaining(socketName)
          .hasMessageContaining("no process listens there");
    }
  }

  @Test
  void shouldRefuseAWrongToken() {
    try (DescriptorServer.Offer offer = server.offer(DescriptorCalls.newEvent())) {
      byte[] wrong = offer.token().clone(); // a copy, because closing the offer needs the original
      wrong[15] ^= 1;
      assertThatThrownBy(() -> DescriptorClient.request(offer.socketName(), wrong, within(10_000)))
          .isInstanceOf(DeviceFailure.class)
          .hasMessageContaining("the token is not its own");
    }
  }

  @Test
  void shouldRefuseAClosedOfferWhileOthersRemain() {
    try (DescriptorServer.Offer kept = server.offer(DescriptorCalls.newEvent())) {
      DescriptorServer.Offer closed = server.offer(DescriptorCalls.newEvent());
      closed.close();
      closed.close();
      assertThatThrownBy(() -> request(closed)).hasMessageContaining("has been freed");
      DescriptorCalls.close(request(kept));
    }
  }

  @Test
  void shouldServeOthersWhileClientsStaySilent() {
    DescriptorServer patient = new DescriptorServer(HOUR_MILLIS);
    try (DescriptorServer.Offer offer = patient.offer(DescriptorCalls.newEvent())) {
      List<Integer> silent = new ArrayList<>();
      for (int i = 0; i < 20; i++) {
        silent.add(DescriptorCalls.connect(name(offer), 10_000));
      }
      DescriptorCalls.close(request(offer));
      assertThat(silent).allMatch(socket -> socket >= 0);
      // The server has disconnected none of them.
      assertThat(silent).noneMatch(socket -> isReadable(socket, 0));
      silent.forEach(DescriptorCalls::close);
    }
  }

  @Test
  void shouldDropSilentClientsSoThatMoreThanItsPlacesAreServed() {
    try (DescriptorServer.Offer offer = server.offer(DescriptorCalls.newEvent())) {
      List<Integer> silent = new ArrayList<>();
      for (int i = 0; i < 100; i++) {
        silent.add(DescriptorCalls.connect(name(offer), 10_000));
      }
      DescriptorCalls.close(request(offer));
      // The server has disconnected the first client.
      assertThat(isReadable(silent.get(0), 10_000)).isTrue();
      int[] status = new int[1];
      assertThat(DescriptorCalls.receiveDescriptor(silent.get(0), 0, status)).isNegative();
      silent.forEach(DescriptorCalls::close);
    }
  }

  @Test
  void shouldDisconnectAClientIfItsRequestIsInvalid() {
    try (DescriptorServer.Offer offer = server.offer(DescriptorCalls.newEvent())) {
      int client = DescriptorCalls.connect(name(offer), 10_000);
      DescriptorCalls.answer(client, 0, -1);
      assertThat(isReadable(client, 10_000)).isTrue();
      assertThat(DescriptorCalls.receiveDescriptor(client, 0, new int[1])).isNegative();
      DescriptorCalls.close(client);
      DescriptorCalls.close(request(offer));
    }
  }

  @Test
  void shouldNotWaitLongerThanItsDeadlineForAServerThatIsSilent() {
    String socketName = "fluxccl-test-" + System.nanoTime();
    int silent = DescriptorCalls.listen(socketName.getBytes(StandardCharsets.UTF_8));
    assertThat(silent).isNotNegative();
    assertThatThrownBy(() -> DescriptorClient.request(socketName, new byte[16], within(100)))
        .isInstanceOf(DeviceFailure.class)
        .hasMessageContaining("no answer within 100 ms");
    DescriptorCalls.close(silent);
  }

  @Test
  void shouldServeManyClientsAtOnce() {
    try (DescriptorServer.Offer offer = server.offer(DescriptorCalls.newEvent())) {
      List<CompletableFuture<Void>> clients = new ArrayList<>();
      for (int i = 0; i < 8; i++) {
        clients.add(
            CompletableFuture.runAsync(
                () -> {
                  for (int j = 0; j < 50; j++) {
                    DescriptorCalls.close(request(offer));
                  }
                }));
      }
      clients.forEach(CompletableFuture::join);
    }
  }

  @Test
  void shouldEndWithTheLastOfferAndLeaveNoDescriptorOpen() throws Exception {
    server.offer(DescriptorCalls.newEvent()).close();
    Awaitility.await().until(() -> threads() == 0);
    long before = openDescriptors();
    for (int i = 0; i < 20; i++) {
      DescriptorServer.Offer offer = server.offer(DescriptorCalls.newEvent());
      assertThat(server.isRunning()).isTrue();
      DescriptorCalls.close(request(offer));
      offer.close();
      assertThat(server.isRunning()).isFalse();
    }
    Awaitility.await().until(() -> threads() == 0);
    assertThat(openDescriptors()).isLessThanOrEqualTo(before);
  }

  private static long threads() {
    return Thread.getAllStackTraces().keySet().stream()
        .filter(thread -> thread.getName().equals("fluxccl-descriptors"))
        .count();
  }

  private static long openDescriptors() throws Exception {
    try (Stream<Path> open = Files.list(Path.of("/proc/self/fd"))) {
      return open.count();
    }
  }
}
