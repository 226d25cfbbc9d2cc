// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import static io.fluxccl.testing.FailureAssertions.assertFails;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.awaitility.Awaitility.await;

import io.fluxccl.Aborted;
import io.fluxccl.Deadline;
import io.fluxccl.InvalidUsage;
import io.fluxccl.testing.Ports;
import io.fluxccl.testing.Rounds;
import io.fluxccl.testkit.ResourceLeaks;
import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.OptionalInt;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.locks.LockSupport;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Cases of a rendezvous that {@code GenerationsTest} does not cover. */
@Timeout(120)
class RendezvousTest {
  private static final Duration LONG = Duration.ofSeconds(60);

  private int port;

  @BeforeEach
  void choosePort() throws IOException {
    port = Ports.free();
  }

  private static Meeting meeting(String address, int nRanks) {
    RankEnvironment place = RankEnvironment.of(0, nRanks).withAddress(address);
    return new Meeting(place, BootstrapOptions.defaults(), nRanks, Duration.ZERO);
  }

  private static CompletableFuture<Membership> attend(Meeting meeting) {
    return meeting.attend(null, OptionalInt.empty(), Deadline.after(LONG));
  }

  @Test
  void shouldRefuseToJoinAfterItsThreadHasEnded() {
    Meeting meeting = meeting("127.0.0.1:" + port, 2);
    CompletableFuture<Membership> before = attend(meeting);
    meeting.close();
    assertFails(before, Aborted.class);
    for (int i = 0; i < 20; i++) {
      assertFails(attend(meeting), Aborted.class);
      LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(50));
      meeting.close();
    }
  }

  @Test
  void shouldFailAtOnceWithoutTheInterfaceOfItsAddress() {
    try (Meeting meeting = meeting("nowhere0:127.0.0.1:" + port, 2)) {
      CompletableFuture<Membership> attending =
          meeting.attend(null, OptionalInt.empty(), Deadline.after(Duration.ofHours(1)));
      assertFails(attending, InvalidUsage.class, "nowhere0");
    }
  }

  @Test
  void shouldReportAWrongSecretBeforeTheTimeout() {
    String address = "127.0.0.1:" + port;
    try (Meeting host = meeting(address, 2)) {
      CompletableFuture<Membership> waiting = attend(host);
      await().atMost(LONG).until(() -> !isFree());
      BootstrapOptions other = BootstrapOptions.builder().secret(JobSecret.random()).build();
      RankEnvironment place = RankEnvironment.of(1, 2).withAddress(address);
      try (Meeting stranger = new Meeting(place, other, 2, Duration.ZERO)) {
        Deadline deadline = Deadline.after(Duration.ofSeconds(8));
        assertFails(
            stranger.attend(null, OptionalInt.empty(), deadline),
            InvalidUsage.class,
            address,
            "it refuses this rank's secret");
      }
      assertThat(waiting).isNotDone();
    }
  }

  @Test
  void shouldFormNoGenerationWithADepartingHost() {
    List<Meeting> meetings = meetOf(3);
    List<Membership> first = attendAll(meetings, List.of());
    meetings.get(0).close(); // joined first, and is the host
    List<Membership> second = attendAll(meetings.subList(1, 3), first.subList(1, 3));
    assertThat(second).extracting(Membership::generation).containsExactly(2L, 2L);
    assertThat(second.get(0).previousRanks()).containsExactly(1, 2);
    assertThatThrownBy(() -> second.get(0).broken().get(400, TimeUnit.MILLISECONDS))
        .isInstanceOf(TimeoutException.class);
    meetings.forEach(Meeting::close);
  }

  @Test
  void shouldWaitForALateConnectedMemberWithoutLeaks() {
    ResourceLeaks before = ResourceLeaks.snapshot();
    List<Meeting> meetings = meetOf(3);
    List<Membership> first = attendAll(meetings, List.of());
    CompletableFuture<Membership> zero = attend(meetings.get(0), first.get(0));
    CompletableFuture<Membership> one = attend(meetings.get(1), first.get(1));
    assertThatThrownBy(() -> one.get(1_500, TimeUnit.MILLISECONDS))
        .isInstanceOf(TimeoutException.class);
    assertThat(attend(meetings.get(2), first.get(2))).succeedsWithin(LONG);
    assertThat(zero.join().nRanks()).isEqualTo(3);
    meetings.forEach(Meeting::close);
    before.assertNone(LONG); // also none of the first root, which no rank joined
  }

  @Test
  void shouldReleaseThePortIfClosedAtAnyTime() {
    int rounds = Rounds.of(25, 100);
    for (int i = 0; i < rounds; i++) {
      Meeting meeting = meeting("127.0.0.1:" + port, i % 2 + 1);
      attend(meeting);
      LockSupport.parkNanos(TimeUnit.MICROSECONDS.toNanos(2000L / rounds * i));
      meeting.close();
      await().atMost(LONG).until(this::isFree);
    }
  }

  /** Creates clients whose later generations need only one rank; the first one hosts. */
  private List<Meeting> meetOf(int nRanks) {
    List<Meeting> meetings = new ArrayList<>();
    for (int rank = 0; rank < nRanks; rank++) {
      RankEnvironment place = RankEnvironment.of(rank, nRanks).withAddress("127.0.0.1:" + port);
      meetings.add(new Meeting(place, BootstrapOptions.defaults(), 1, Duration.ZERO));
    }
    return meetings;
  }

  private static CompletableFuture<Membership> attend(Meeting meeting, Membership previous) {
    return meeting.attend(previous, OptionalInt.empty(), Deadline.after(LONG));
  }

  /** Joins all clients and returns the members of the generation in rank order. */
  private List<Membership> attendAll(List<Meeting> meetings, List<Membership> previous) {
    List<CompletableFuture<Membership>> all = new ArrayList<>();
    for (int i = 0; i < meetings.size(); i++) {
      all.add(attend(meetings.get(i), previous.isEmpty() ? null : previous.get(i)));
      if (i == 0 && previous.isEmpty()) {
        await().atMost(LONG).until(() -> !isFree());
      }
    }
    return all.stream().map(CompletableFuture::join).toList();
  }

  private boolean isFree() {
    try (ServerSocket socket = new ServerSocket()) {
      socket.setReuseAddress(true);
      socket.bind(new java.net.InetSocketAddress(InetAddress.getLoopbackAddress(), port));
      return true;
    } catch (IOException e) {
      return false;
    }
  }
}
