// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import static io.fluxccl.testing.FailureAssertions.assertThrows;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.Deadline;
import io.fluxccl.DeviceFailure;
import io.fluxccl.testing.RequiresNativeLibrary;
import io.fluxccl.testing.TestJvms;
import io.fluxccl.testkit.ProcessRank;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.HexFormat;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.stream.IntStream;
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
  private static final int ROUNDS = 20;

  private final DescriptorServer server = new DescriptorServer(CLIENT_TIMEOUT_MILLIS);

  private static Deadline within(int millis) {
    return Deadline.after(Duration.ofMillis(millis));
  }

  private static int request(DescriptorServer.Offer offer) {
    return DescriptorServer.request(offer.socketName(), offer.token(), within(10_000));
  }

  /** Offers a new event. */
  private DescriptorServer.Offer offer() {
    return server.offer(DescriptorCalls.newEvent());
  }

  private static int connect(DescriptorServer.Offer offer) {
    byte[] name = offer.socketName().getBytes(StandardCharsets.UTF_8);
    int client = DescriptorCalls.connect(name, 10_000);
    assertThat(client).isNotNegative();
    return client;
  }

  private static List<Integer> connect(DescriptorServer.Offer offer, int clients) {
    return IntStream.range(0, clients).mapToObj(i -> connect(offer)).toList();
  }

  private static void assertDisconnected(int client) {
    assertThat(isReadable(client, 10_000)).isTrue();
    assertThat(DescriptorCalls.receiveDescriptor(client, 0, new int[1])).isNegative();
  }

  private static boolean isReadable(int descriptor, int timeoutMillis) {
    boolean[] readable = new boolean[1];
    DescriptorCalls.awaitReadable(new int[] {descriptor}, readable, 1, timeoutMillis);
    return readable[0];
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
  void shouldReportThatNoProcessListensIfTheOwnerWasKilled() throws Exception {
    try (ProcessRank owner = TestJvms.start(Owner.class)) {
      String socketName = owner.readLine();
      byte[] token = HexFormat.of().parseHex(owner.readLine());
      assertThat(socketName).startsWith("fluxccl-" + owner.pid() + "-");
      DescriptorCalls.close(DescriptorServer.request(socketName, token, within(10_000)));

      owner.kill();

      assertThrows(
          DeviceFailure.class,
          () -> DescriptorServer.request(socketName, token, within(10_000)),
          socketName,
          "no process listens there");
    }
  }

  @Test
  void shouldRefuseAWrongToken() {
    try (DescriptorServer.Offer offer = offer()) {
      byte[] wrong = offer.token().clone(); // a copy, because closing the offer needs the original
      wrong[15] ^= 1;
      assertThrows(
          DeviceFailure.class,
          () -> DescriptorServer.request(offer.socketName(), wrong, within(10_000)),
          "the token is not its own");
    }
  }

  @Test
  void shouldRefuseAClosedOfferWhileOthersRemain() {
    try (DescriptorServer.Offer kept = offer()) {
      DescriptorServer.Offer closed = offer();
      closed.close();
      closed.close();
      assertThrows(DeviceFailure.class, () -> request(closed), "has been freed");
      DescriptorCalls.close(request(kept));
    }
  }

  @Test
  void shouldServeOthersWhileClientsStaySilent() {
    DescriptorServer patient = new DescriptorServer(HOUR_MILLIS);
    try (DescriptorServer.Offer offer = patient.offer(DescriptorCalls.newEvent())) {
      List<Integer> silent = connect(offer, 20);
      DescriptorCalls.close(request(offer));
      // The server has disconnected none of them.
      assertThat(silent).noneMatch(socket -> isReadable(socket, 0));
      silent.forEach(DescriptorCalls::close);
    }
  }

  @Test
  void shouldDropSilentClientsSoThatMoreThanItsPlacesAreServed() {
    try (DescriptorServer.Offer offer = offer()) {
      List<Integer> silent = connect(offer, 100);
      DescriptorCalls.close(request(offer));
      assertDisconnected(silent.get(0));
      silent.forEach(DescriptorCalls::close);
    }
  }

  @Test
  void shouldDisconnectAClientIfItsRequestIsInvalid() {
    try (DescriptorServer.Offer offer = offer()) {
      int client = connect(offer);
      DescriptorCalls.answer(client, 0, -1);
      assertDisconnected(client);
      DescriptorCalls.close(client);
      DescriptorCalls.close(request(offer));
    }
  }

  @Test
  void shouldNotWaitLongerThanItsDeadlineForAServerThatIsSilent() {
    String socketName = "fluxccl-test-" + System.nanoTime();
    int silent = DescriptorCalls.listen(socketName.getBytes(StandardCharsets.UTF_8));
    assertThat(silent).isNotNegative();
    assertThrows(
        DeviceFailure.class,
        () -> DescriptorServer.request(socketName, new byte[16], within(100)),
        "no answer within 100 ms");
    DescriptorCalls.close(silent);
  }

  @Test
  void shouldServeManyClientsAtOnce() {
    try (DescriptorServer.Offer offer = offer()) {
      Runnable requests =
          () -> {
            for (int i = 0; i < 50; i++) {
              DescriptorCalls.close(request(offer));
            }
          };
      CompletableFuture<?>[] clients =
          IntStream.range(0, 8)
              .mapToObj(i -> CompletableFuture.runAsync(requests))
              .toArray(CompletableFuture[]::new);
      CompletableFuture.allOf(clients).join();
    }
  }

  @Test
  void shouldEndWithTheLastOfferAndLeaveNoDescriptorOpen() throws Exception {
    offer().close();
    Awaitility.await().until(() -> threads() == 0);
    long before = openDescriptors();
    for (int i = 0; i < ROUNDS; i++) {
      DescriptorServer.Offer offer = offer();
      assertThat(server.isRunning()).isTrue();
      DescriptorCalls.close(request(offer));
      offer.close();
      assertThat(server.isRunning()).isFalse();
    }
    Awaitility.await().until(() -> threads() == 0);
    // The virtual machine opens files of its own meanwhile; a leak adds one a round.
    assertThat(openDescriptors()).isLessThan(before + ROUNDS);
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
