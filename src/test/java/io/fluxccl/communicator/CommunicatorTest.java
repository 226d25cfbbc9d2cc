// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.communicator;

import static io.fluxccl.testing.FailureAssertions.assertFails;
import static io.fluxccl.testing.FailureAssertions.assertRefused;
import static io.fluxccl.testing.FailureAssertions.assertThrows;
import static io.fluxccl.testing.Outcomes.failsJob;
import static io.fluxccl.transport.Transport.ETHERNET;
import static io.fluxccl.transport.Transport.SHM;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.awaitility.Awaitility.await;

import io.fluxccl.Aborted;
import io.fluxccl.Deadline;
import io.fluxccl.DeviceFailure;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.NonblockingFuture;
import io.fluxccl.Timeout;
import io.fluxccl.TransportFailure;
import io.fluxccl.bootstrap.Bootstrap;
import io.fluxccl.bootstrap.LocalBootstrap;
import io.fluxccl.concurrent.SpinPolicy;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.host.HostDevice;
import io.fluxccl.device.host.HostMemory;
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.testkit.LocalRanks;
import io.fluxccl.testkit.Ranks;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.RegisteredMemory;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.TransportFlags;
import java.lang.ref.WeakReference;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;
import reactor.test.StepVerifier;

@Tag("jdk")
@Ranks(value = 2, leakCheck = false)
class CommunicatorTest {
  private static final Duration SHORT = Duration.ofMillis(400);

  private static final Duration TIMEOUT = Duration.ofSeconds(60);

  @ParameterizedTest
  @EnumSource(names = {"SHM", "ETHERNET"})
  @Ranks(value = 4, leakCheck = false)
  void shouldWriteToEveryPeer(Transport transport, LocalRank rank) {
    int n = 4;
    int chunk = 1024;
    Communicator communicator = rank.communicator();
    DeviceBuffer buffer = rank.device().allocate((long) n * chunk);
    RegisteredMemory mine =
        communicator.registerMemory(buffer, TransportFlags.of(SHM, ETHERNET, transport));
    Map<Integer, NonblockingFuture<Connection>> links = new HashMap<>();
    Map<Integer, NonblockingFuture<RegisteredMemory>> memories = new HashMap<>();
    for (int peer = 0; peer < n; peer++) {
      if (peer != rank.rank()) {
        links.put(peer, communicator.connectOnSetup(peer, 7, transport));
        communicator.sendMemoryOnSetup(mine, peer, 7);
        memories.put(peer, communicator.recvMemoryOnSetup(peer, 7));
      }
    }
    communicator.setup().join();
    long own = buffer.address() + (long) rank.rank() * chunk;
    HostMemory.fill(own, chunk, (byte) (rank.rank() + 1));
    links.forEach(
        (peer, link) -> {
          assertThat(communicator.remoteRankOf(link.join())).isEqualTo(peer);
          assertThat(communicator.tagOf(link.join())).isEqualTo(7);
          long offset = (long) rank.rank() * chunk;
          link.join()
              .write(memories.get(peer).join(), offset, mine, offset, chunk)
              .flush(TIMEOUT)
              .join();
        });
    rank.awaitAll();
    for (int i = 0; i < n * chunk; i += Integer.BYTES) {
      int expected = (i / chunk + 1) * 0x01010101;
      assertThat(HostMemory.getInt(buffer.address() + i)).isEqualTo(expected);
    }
    rank.awaitAll();
  }

  @ParameterizedTest
  @EnumSource(names = {"SHM", "ETHERNET"})
  @Ranks(value = 1, leakCheck = false)
  void shouldConnectToItself(Transport transport, LocalRank rank) {
    Communicator communicator = rank.communicator();
    DeviceBuffer buffer = rank.device().allocate(64);
    RegisteredMemory mine = communicator.registerMemory(buffer, TransportFlags.of(transport));
    NonblockingFuture<Connection> link = communicator.connectOnSetup(0, 0, transport);
    communicator.sendMemoryOnSetup(mine, 0, 0);
    NonblockingFuture<RegisteredMemory> same = communicator.recvMemoryOnSetup(0, 0);
    communicator.setup().join();
    HostMemory.putLong(buffer.address(), 42);
    link.join().write(same.join(), 32, mine, 0, 8).flush(TIMEOUT).join();
    assertThat(HostMemory.getLong(buffer.address() + 32)).isEqualTo(42);
  }

  @Test
  @Ranks(value = 3, leakCheck = false)
  void shouldExchangeMessagesWithAllRanks(LocalRank rank) {
    byte[] mine = {(byte) rank.rank()};
    Deadline deadline = Deadline.after(TIMEOUT);
    List<byte[]> all = rank.communicator().exchange(9, mine, deadline).join();
    assertThat(all).containsExactly(new byte[] {0}, new byte[] {1}, new byte[] {2});
  }

  @Test
  void shouldEndAnExchangeWhenTheCommunicatorFails(LocalRanks ranks) {
    Communicator communicator = ranks.ranks().get(0).communicator();
    CompletableFuture<List<byte[]>> exchange =
        communicator.exchange(9, new byte[0], Deadline.after(TIMEOUT));
    ranks.ranks().get(1).communicator().abort(new DeviceFailure(1, "LOST", "it broke"));
    assertThatThrownBy(exchange::join).hasCauseInstanceOf(DeviceFailure.class);
  }

  @Test
  void shouldRefuseToWaitForASetupThatWasNotStarted(LocalRanks ranks) {
    NonblockingFuture<Connection> link =
        ranks.ranks().get(0).communicator().connectOnSetup(1, 0, SHM);
    String what = "connectOnSetup(rank=1, tag=0, SHM)";
    assertThrows(IllegalStateException.class, link::join, what, "setup()");
    assertThrows(IllegalStateException.class, () -> link.thenApply(c -> c).join());
  }

  @Test
  void shouldAllowBlockingInContinuationsOfSetup(LocalRank rank) throws Exception {
    rank.communicator().connectOnSetup(1 - rank.rank(), 0, SHM);
    rank.communicator()
        .setup()
        .thenRun(() -> rank.bootstrap().barrier(Deadline.after(TIMEOUT)).join())
        .get(60, TimeUnit.SECONDS);
  }

  @Test
  void shouldRunAThousandOperationsInOneSetup(LocalRank rank) {
    int n = 1000;
    Communicator communicator = rank.communicator();
    DeviceBuffer buffer = rank.device().allocate(n * 8L);
    List<NonblockingFuture<RegisteredMemory>> memories = new ArrayList<>();
    for (int i = 0; i < n; i++) {
      RegisteredMemory part =
          communicator.registerMemory(buffer.slice(i * 8L, 8), TransportFlags.of(SHM));
      communicator.sendMemoryOnSetup(part, 1 - rank.rank(), 3);
      memories.add(communicator.recvMemoryOnSetup(1 - rank.rank(), 3));
    }
    HostMemory.putLong(buffer.address() + (n - 1) * 8L, 1000 + rank.rank());
    communicator.setup().join();
    // In order: the last one received is the last one sent.
    long last = HostMemory.getLong(memories.get(n - 1).join().address());
    assertThat(last).isEqualTo(1000 + 1 - rank.rank());
    rank.awaitAll();
  }

  @Test
  void shouldNameTheRankThatDoesNotConnectBack(LocalRanks ranks) {
    Communicator lonely = ranks.ranks().get(0).communicator();
    NonblockingFuture<Connection> link = lonely.connectOnSetup(1, 5, SHM);
    long start = System.nanoTime();
    FluxCclException late =
        assertFails(lonely.setup(SHORT), Timeout.class, "connectOnSetup(rank=1, tag=5, SHM)");
    assertThat(late.rank()).isEqualTo(1);
    assertThat(Duration.ofNanos(System.nanoTime() - start)).isGreaterThanOrEqualTo(SHORT);
    StepVerifier.create(link.mono()).expectError(Timeout.class).verify(TIMEOUT);
  }

  @ParameterizedTest
  @CsvSource({
    "SHM, ETHERNET, both ends must name the same transport",
    "IB7, IB7, IB7 is not available"
  })
  void shouldFailTheSetUpOnBothRanksIfTheyCannotConnect(
      Transport ofZero, Transport ofOne, String reason, LocalRank rank) {
    rank.communicator().connectOnSetup(1 - rank.rank(), 0, rank.rank() == 0 ? ofZero : ofOne);
    assertFails(rank.communicator().setup(), InvalidUsage.class, reason);
  }

  @Test
  @Ranks(value = 2, hosts = 2, leakCheck = false)
  void shouldRefuseToMapMemoryOfAnotherHost(LocalRank rank) {
    rank.communicator().connectOnSetup(1 - rank.rank(), 0, SHM);
    assertFails(rank.communicator().setup(), FluxCclException.class, "ETHERNET");
  }

  @Test
  void shouldRefuseRanksAndTagsOutOfRange(LocalRanks ranks) {
    Communicator communicator = ranks.ranks().get(0).communicator();
    assertRefused(() -> communicator.connectOnSetup(2, 0, SHM));
    assertRefused(() -> communicator.connectOnSetup(-1, 0, SHM));
    assertRefused(() -> communicator.recvMemoryOnSetup(1, -1));
    assertRefused(() -> communicator.recvMemoryOnSetup(1, 1 << 24));
  }

  @Test
  @Ranks(value = 1, leakCheck = false)
  void shouldRefuseRangesOutsideAMemory(LocalRank rank) {
    Communicator communicator = rank.communicator();
    RegisteredMemory mine =
        communicator.registerMemory(rank.device().allocate(64), TransportFlags.of(SHM));
    NonblockingFuture<Connection> link = communicator.connectOnSetup(0, 0, SHM);
    communicator.sendMemoryOnSetup(mine, 0, 0);
    NonblockingFuture<RegisteredMemory> received = communicator.recvMemoryOnSetup(0, 0);
    communicator.setup().join();
    RegisteredMemory same = received.join();
    for (long[] wrong : new long[][] {{60, 0, 8}, {0, 60, 8}, {-1, 0, 8}, {0, 0, -1}, {0, 0, 65}}) {
      assertRefused(() -> link.join().write(same, wrong[0], mine, wrong[1], wrong[2]), "64 bytes");
    }
  }

  @Test
  @Ranks(value = 3, leakCheck = false)
  void shouldEndPendingOperationsOfEveryRankWhenOneAborts(LocalRanks ranks) {
    NonblockingFuture<Connection> link =
        ranks.ranks().get(1).communicator().connectOnSetup(2, 0, SHM);
    ranks.ranks().get(1).communicator().setup();
    ranks.ranks().get(0).communicator().abort(new Aborted(0, "enough"));
    assertThat(assertFails(link, Aborted.class, "enough").rank()).isZero();
    for (LocalRank rank : ranks.ranks()) {
      failsJob(rank, Aborted.class, "enough");
      assertThat(rank.communicator().abortFlag().isSet()).isTrue();
      rank.communicator().connectOnSetup(0, 1, SHM);
      assertFails(rank.communicator().setup(), Aborted.class);
    }
  }

  @Test
  void shouldListPendingSetupsInTheDump(LocalRanks ranks) {
    Communicator communicator = ranks.ranks().get(0).communicator();
    communicator.connectOnSetup(1, 9, SHM);
    communicator.setup();
    assertThat(communicator.dump())
        .contains("rank=0 of 2")
        .contains("connectOnSetup(rank=1, tag=9, SHM) waits since");
  }

  @Test
  @Ranks(value = 1, leakCheck = false)
  void shouldKeepQueuedOperationsIfTheTimeoutIsInvalid(LocalRank rank) {
    Communicator communicator = rank.communicator();
    NonblockingFuture<Connection> link = communicator.connectOnSetup(0, 0, SHM);
    assertRefused(() -> communicator.setup(Duration.ofMillis(-1)));
    communicator.setup().join();
    assertThat(link).isCompleted();
  }

  @Test
  void shouldFailQueuedSetupsIfClosed(LocalRanks ranks) {
    Communicator communicator = ranks.ranks().get(0).communicator();
    NonblockingFuture<Connection> before = communicator.connectOnSetup(1, 0, SHM);
    communicator.close();
    communicator.close();
    NonblockingFuture<RegisteredMemory> after = communicator.recvMemoryOnSetup(1, 0);
    for (NonblockingFuture<?> each : List.of(before, after)) {
      assertFails(each, Aborted.class, "rank 0 was closed");
    }
    assertThat(communicator.dump()).contains("rank 0 was closed").contains("rank none");
    assertThat(communicator.abortFlag().isSet()).isTrue();
  }

  @Test
  void shouldNotBeKeptByItsBootstrapOnceClosed() {
    try (LocalBootstrap bootstrap = LocalBootstrap.group(1).get(0);
        HostDevice device = HostDevice.create()) {
      WeakReference<Communicator> closed = closedCommunicator(bootstrap, device);
      await()
          .atMost(TIMEOUT)
          .until(
              () -> {
                System.gc();
                return closed.get() == null;
              });
      assertThat(bootstrap.failure()).isNotDone();
    }
  }

  private static WeakReference<Communicator> closedCommunicator(
      Bootstrap bootstrap, HostDevice device) {
    Communicator communicator = Communicator.create(bootstrap, device);
    NonblockingFuture<Connection> link = communicator.connectOnSetup(0, 0, SHM);
    assertThat(communicator.setup(TIMEOUT)).succeedsWithin(TIMEOUT);
    assertThat(link).isCompleted();
    communicator.close();
    return new WeakReference<>(communicator);
  }

  @Test
  void shouldNotifyPeersIfADeviceFails(LocalRanks ranks) {
    DeviceFailure failure = new DeviceFailure(700, "CUDA_ERROR_ILLEGAL_ADDRESS", "a kernel fell");
    ranks.ranks().get(0).communicator().abort(failure);
    assertThat(failsJob(ranks.ranks().get(0), DeviceFailure.class)).isSameAs(failure);
    assertThat(failsJob(ranks.ranks().get(1), DeviceFailure.class))
        .hasMessage("rank 0: a kernel fell");
  }

  @Test
  void shouldSendTheAbortReasonIfClosedAtOnce(LocalRanks ranks) {
    Communicator leaving = ranks.ranks().get(0).communicator();
    leaving.abort(new TransportFailure(1, "the cable is cut"));
    leaving.close();
    for (LocalRank rank : ranks.ranks()) {
      FluxCclException why = failsJob(rank, TransportFailure.class);
      assertThat(why).hasMessage("the cable is cut");
      assertThat(why.rank()).isEqualTo(1);
    }
    assertThat(leaving.isClosed()).isFalse();
  }

  @Test
  void shouldUseATagAgainAfterItsTransportWasRefused(LocalRank rank) throws Exception {
    Communicator communicator = rank.communicator();
    int peer = 1 - rank.rank();
    // Rank 0 cannot use its transport; rank 1 can.
    communicator.connectOnSetup(peer, 4, rank.rank() == 0 ? Transport.CUDA_IPC : ETHERNET);
    assertFails(communicator.setup(), FluxCclException.class);
    NonblockingFuture<Connection> link = communicator.connectOnSetup(peer, 4, SHM);
    communicator.setup().get(60, TimeUnit.SECONDS);
    assertThat(link.join().transport()).isEqualTo(SHM);
  }

  @ParameterizedTest
  @EnumSource(names = {"SHM", "ETHERNET"})
  @Ranks(value = 1, leakCheck = false)
  void shouldForgetClosedConnections(Transport transport, LocalRank rank) {
    Communicator communicator = rank.communicator();
    NonblockingFuture<Connection> link = communicator.connectOnSetup(0, 0, transport);
    communicator.setup().join();
    assertThat(communicator.dump()).contains("connection to rank 0");
    link.join().close();
    await()
        .untilAsserted(
            () -> assertThat(communicator.dump()).doesNotContain("connection to rank 0"));
  }

  @Test
  void shouldAllowFailureCallbacksToAwaitFailedFutures(LocalRanks ranks) {
    Communicator communicator = ranks.ranks().get(1).communicator();
    NonblockingFuture<Connection> pending = communicator.connectOnSetup(0, 1, SHM);
    CompletableFuture<Void> setup = communicator.setup();
    CompletableFuture<Void> queued = new CompletableFuture<>();
    communicator.connectOnSetup(0, 2, SHM).whenComplete((done, failure) -> queued.complete(null));
    CompletableFuture<Void> running = communicator.inFlight(new CompletableFuture<>());
    CompletableFuture<Void> told =
        communicator
            .failed()
            .thenAccept(
                reason ->
                    Stream.of(running, setup, pending, queued)
                        .forEach(each -> each.handle((done, failure) -> null).join()));
    // A callback of a failed future may wait for the reason, too.
    CompletableFuture<FluxCclException> reason =
        communicator
            .inFlight(new CompletableFuture<Void>())
            .handle((done, failure) -> communicator.failed().join());
    Aborted enough = new Aborted(0, "enough");
    ranks.ranks().get(0).communicator().abort(enough);
    assertThat(told).succeedsWithin(TIMEOUT);
    assertThat(reason).succeedsWithin(TIMEOUT).isInstanceOf(Aborted.class);
  }

  @Test
  void shouldNotReceiveMessagesOfTheNextCommunicatorAfterClose(LocalRanks ranks) {
    LocalRank first = ranks.ranks().get(0);
    LocalRank second = ranks.ranks().get(1);
    first.communicator().connectOnSetup(1, 0, SHM);
    CompletableFuture<Void> setup = first.communicator().setup();
    first.communicator().close();
    assertThat(setup).failsWithin(TIMEOUT);
    // The one message that was sent is read, and so is the one that answers it.
    first.bootstrap().barrier(Deadline.after(TIMEOUT));
    second.bootstrap().barrier(Deadline.after(TIMEOUT)).join();
    second.bootstrap().recv(0, 0x40000000, Deadline.after(TIMEOUT)).join();
    try (Communicator again = Communicator.create(first.bootstrap(), first.device())) {
      NonblockingFuture<Connection> link = again.connectOnSetup(1, 0, SHM);
      CompletableFuture<Void> ours = again.setup(TIMEOUT);
      second.communicator().connectOnSetup(0, 0, SHM);
      second.communicator().setup(TIMEOUT).join();
      ours.join();
      assertThat(link.join().remoteRank()).isEqualTo(1);
    }
  }

  @Test
  void shouldCompleteASetupOnlyWithItsOwnOperations(LocalRank rank) throws Exception {
    Communicator communicator = rank.communicator();
    int peer = 1 - rank.rank();
    communicator.connectOnSetup(peer, 1, SHM);
    CompletableFuture<NonblockingFuture<Connection>> own =
        communicator.setup(
            Deadline.after(TIMEOUT), () -> communicator.connectOnSetup(peer, 2, SHM));
    assertThat(own.get(60, TimeUnit.SECONDS)).isCompleted();
    assertThat(communicator.dump()).doesNotContain("tag 1");
    communicator.setup().get(60, TimeUnit.SECONDS);
    assertThat(communicator.dump()).contains("tag 1");
  }

  @Test
  void shouldBeCrowdedIfAnyJobOfTheProcessIsCrowded() {
    try (HostDevice device = HostDevice.create()) {
      Awaitility.await().until(() -> !SpinPolicy.isCrowded()); // threads of other tests end
      List<LocalBootstrap> group = LocalBootstrap.group(1);
      try (LocalBootstrap bootstrap = group.get(0)) {
        Communicator.HostProcessCount many = Communicator.HostProcessCount.add(1_000);
        Communicator small = Communicator.create(bootstrap, device);
        assertThat(SpinPolicy.isCrowded()).isTrue();
        small.close();
        assertThat(SpinPolicy.isCrowded()).isTrue();
        many.close();
        many.close();
        Awaitility.await().until(() -> !SpinPolicy.isCrowded());
      }
    }
  }
}
