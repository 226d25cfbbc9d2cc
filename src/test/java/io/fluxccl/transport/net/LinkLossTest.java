// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import static io.fluxccl.testing.FailureAssertions.assertFailure;
import static io.fluxccl.testing.FailureAssertions.assertFailureOf;
import static io.fluxccl.transport.ConnectedRanks.LIMIT;
import static io.fluxccl.transport.ConnectedRanks.deadline;
import static io.fluxccl.transport.ConnectedRanks.failureOf;
import static io.fluxccl.transport.ConnectedRanks.get;
import static org.assertj.core.api.Assertions.assertThat;
import static org.awaitility.Awaitility.await;

import io.fluxccl.Aborted;
import io.fluxccl.FluxCclException;
import io.fluxccl.TransportFailure;
import io.fluxccl.device.host.HostDevice;
import io.fluxccl.testing.Rounds;
import io.fluxccl.testing.TcpForwarder;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.Contents;
import io.fluxccl.transport.Endpoint;
import io.fluxccl.transport.EndpointConfig;
import io.fluxccl.transport.Transfer;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.MethodSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Connections whose links are reset, cut or falsified. */
@Timeout(180)
class LinkLossTest {
  private static final int SIZE = Rounds.of(1, 3) << 20;

  private final List<TcpForwarder> forwarders = new ArrayList<>();
  private final Random random = new Random(11);
  private NetRanks ranks;
  private EndpointConfig config;
  private NetConnection link;
  private NetConnection back;

  @BeforeEach
  void open() {
    use(NetRanks.ethernet(false));
  }

  private void use(NetRanks opened) {
    ranks = opened;
    config = EndpointConfig.of(ranks.transport());
  }

  @AfterEach
  void close() {
    forwarders.forEach(TcpForwarder::close);
    ranks.close();
  }

  /** Connects the ranks, each through a forwarder. */
  private void connect() throws Exception {
    Endpoint a = ranks.context(0).createEndpoint(1, 0, config);
    Endpoint b = ranks.context(1).createEndpoint(0, 0, config);
    CompletableFuture<Connection> toB = a.connect(forwarded(b, 1), deadline());
    CompletableFuture<Connection> toA = b.connect(forwarded(a, 0), deadline());
    link = (NetConnection) get(toB);
    back = (NetConnection) get(toA);
  }

  private byte[] forwarded(Endpoint end, int rank) throws IOException {
    EndpointWire wire = EndpointWire.decode(end.wire(), rank);
    ByteBuffer handle = ByteBuffer.wrap(wire.address()).order(ByteOrder.LITTLE_ENDIAN);
    TcpForwarder forwarder = new TcpForwarder(handle.getInt(8));
    forwarders.add(forwarder);
    handle.putInt(8, forwarder.port());
    return wire.encode();
  }

  private void reset() {
    forwarders.forEach(TcpForwarder::reset);
  }

  /** Cuts the path, and waits until the connection has lost its link. */
  private void lose() {
    cut();
    reset();
    awaitResumed(link, 1);
  }

  private void cut() {
    forwarders.forEach(TcpForwarder::cut);
  }

  private void restore(boolean onOldSockets) {
    forwarders.forEach(forwarder -> forwarder.restore(onOldSockets));
  }

  private static void awaitResumed(NetConnection connection, long times) {
    await().atMost(LIMIT).until(() -> connection.resumptions() >= times);
  }

  private void checkWrites() throws Exception {
    checkWrites(() -> {});
  }

  /** Writes in both directions, and does something meanwhile; then all must be there. */
  private void checkWrites(Runnable meanwhile) throws Exception {
    List<Connection> ends = List.of(link, back);
    Transfer there = ranks.transfer(ends, 0, SIZE + 8);
    Transfer here = ranks.transfer(ends, 1, SIZE);
    Contents.fill(there.source(), random.nextInt());
    AtomicLong counter = new AtomicLong();
    for (int at = 0, n = 1; at < SIZE; at += n) {
      n = Math.min(SIZE - at, random.nextInt(20) == 0 ? 900_000 : 1 + random.nextInt(9_000));
      there.write(at, at, n).signal(SIZE, counter, at + n);
    }
    here.write();
    CompletableFuture<Void> flush = link.flush(LIMIT.multipliedBy(3));
    CompletableFuture<Void> flushBack = back.flush(LIMIT.multipliedBy(3));
    meanwhile.run();
    get(flush);
    get(flushBack);
    assertThat(Contents.getLong(there.target(), SIZE)).isEqualTo(SIZE);
    there.assertWritten(0, 0, SIZE);
    here.assertWritten();
    there.closeMemory();
    here.closeMemory();
  }

  /** Resets all sockets when some more bytes have passed. */
  private void resetSoon() {
    TcpForwarder forwarder = forwarders.get(0);
    long at = forwarder.forwarded() + random.nextInt(SIZE);
    long end = System.nanoTime() + Duration.ofMillis(200).toNanos();
    while (forwarder.forwarded() < at && System.nanoTime() < end) {
      Thread.yield();
    }
    reset();
  }

  @ParameterizedTest
  @EnumSource(names = "ETHERNET.*", mode = EnumSource.Mode.MATCH_ALL)
  void shouldResumeIfItsSocketsAreResetAtAnyTime(Network network) throws Exception {
    ranks.close();
    use(network.open(null));
    connect();
    for (int round = 0; round < Rounds.of(5, 50); round++) {
      checkWrites(this::resetSoon);
    }
    checkWrites();
    assertThat(link.failure()).isNull();
    assertThat(link.resumptions()).isPositive();
  }

  @Test
  void shouldResumeOnceForEachReset() throws Exception {
    connect();
    for (int round = 0; round < 6; round++) {
      reset();
      checkWrites();
    }
    assertThat(link.resumptions()).isEqualTo(6);
  }

  @Test
  void shouldResumeAfterAResetWhileIdle() throws Exception {
    connect();
    checkWrites();
    reset();
    awaitResumed(link, 1);
    awaitResumed(back, 1);
    checkWrites();
  }

  @ParameterizedTest
  @ValueSource(booleans = {false, true})
  void shouldContinueIfThePathIsCutFor2Seconds(boolean oldSocketsRecover) throws Exception {
    ranks.close();
    use(NetRanks.ethernetUnanswered());
    connect();
    checkWritesWhileCutFor(Duration.ofSeconds(2), oldSocketsRecover);
    assertThat(link.resumptions() > 0).isNotEqualTo(oldSocketsRecover);
  }

  static List<Integer> secondsCut() {
    return Rounds.LONG ? List.of(30, 60) : List.of(8);
  }

  @Tag("long")
  @ParameterizedTest
  @MethodSource("secondsCut")
  void shouldContinueIfThePathIsCutForLessThanTheResumeTimeout(int seconds) throws Exception {
    ranks.close();
    use(NetRanks.ethernetUnanswered());
    config = config.withResumeTimeout(Duration.ofSeconds(90));
    connect();
    checkWritesWhileCutFor(Duration.ofSeconds(seconds), false);
    checkWrites();
  }

  /**
   * Cuts the path before it writes: on a busy machine the writes might complete before a later cut.
   */
  private void checkWritesWhileCutFor(Duration time, boolean oldSocketsRecover) throws Exception {
    cut();
    checkWrites(
        () -> {
          pause(time);
          restore(oldSocketsRecover);
        });
  }

  /** Lets time pass, which is what these tests are about. */
  private static void pause(Duration time) {
    try {
      Thread.sleep(time.toMillis());
    } catch (InterruptedException e) {
      throw new IllegalStateException(e);
    }
  }

  @Test
  void shouldTimeOutFlushesWhileThePathIsCutAndThenContinue() throws Exception {
    connect();
    checkWrites();
    lose();
    assertFailure(
        io.fluxccl.Timeout.class,
        failureOf(link.flush(Duration.ofMillis(300))),
        "connection of rank 0 to rank 1",
        "the link is down: ");
    assertThat(link.interruption().rank()).isEqualTo(1);
    assertThat(link.failure()).isNull();
    restore(true);
    checkWrites();
    assertThat(link.interruption()).isNull();
  }

  @Test
  void shouldFailNamingBothRanksWhenTheLimitPasses() throws Exception {
    config = config.withResumeTimeout(Duration.ofMillis(500));
    connect();
    cut();
    reset();
    assertLost(get(link.failed()), 0, 1);
    assertLost(get(back.failed()), 1, 0);
  }

  private static void assertLost(FluxCclException failure, int rank, int peer) {
    assertFailureOf(
        peer,
        TransportFailure.class,
        failure,
        "connection of rank " + rank + " to rank " + peer,
        "no other link within 500 ms");
  }

  @Test
  void shouldFailAtOnceWhenThePeerIsGoneWhileItResumes() throws Exception {
    connect();
    lose();
    ranks.sever(1);
    forwarders.forEach(TcpForwarder::close);
    FluxCclException failure = get(link.failed());
    assertFailureOf(1, TransportFailure.class, failure, "can't resume", "is its process alive");
  }

  @Test
  void shouldFailAtOnceWhereItMayNotResume() throws Exception {
    config = config.withResumeTimeout(Duration.ZERO);
    connect();
    reset();
    assertThat(get(link.failed())).isInstanceOf(TransportFailure.class);
    assertThat(link.resumptions()).isZero();
  }

  @Test
  void shouldCloseWhileItResumes() throws Exception {
    connect();
    lose();
    link.close();
    back.close();
    assertThat(get(link.failed())).isInstanceOf(Aborted.class);
    ranks.awaitOpen(0, 0);
    ranks.awaitOpen(1, 0);
  }

  @Test
  @Tag("long")
  void shouldTakeNoPeerForLostThatIsOnlyHeldUp() throws Exception {
    ranks.close();
    WatchedDevice device = new WatchedDevice(HostDevice.create());
    use(NetRanks.staged(HostDevice.create(), device));
    connect();
    // Copies to rank 1's memory wait, so its end reads nothing more.
    device.hold();
    checkWrites(
        () -> {
          pause(Duration.ofSeconds(12));
          device.letGo();
        });
    assertThat(link.resumptions()).isZero();
  }

  @Test
  @Tag("long")
  void shouldKeepTheLinkIfThePeersLoopIsLate() throws Exception {
    connect();
    checkWrites();
    // The peer's system acknowledges all, its process reads nothing.
    back.context().agent().execute(() -> pause(Duration.ofSeconds(8)));
    checkWrites();
    assertThat(link.resumptions()).isZero();
    assertThat(back.resumptions()).isZero();
  }

  /** Checksums detect it without TLS. */
  @ParameterizedTest
  @EnumSource(names = {"ETHERNET", "ETHERNET_TLS"})
  void shouldResendAfterTheNetworkCorruptedData(Network network) throws Exception {
    ranks.close();
    use(network.open(null));
    config = config.withChecksums(network == Network.ETHERNET);
    connect();
    for (int round = 0; round < 5; round++) {
      long before = link.resumptions();
      forwarders.get(0).swapWords(1);
      checkWrites();
      assertThat(link.resumptions()).isGreaterThan(before);
    }
  }

  @Test
  void shouldFailNamingBothRanksWhenAMessageIsFalsifiedAgainAndAgain() throws Exception {
    config = config.withChecksums(true);
    connect();
    forwarders.get(0).swapWords(1000);
    ranks.transfer(List.of(link, back), 0, SIZE).write();
    FluxCclException failure = get(back.failed());
    assertFailureOf(
        0, TransportFailure.class, failure, "connection of rank 1 to rank 0", "wrong checksum");
    assertThat(get(link.failed())).isInstanceOf(TransportFailure.class);
  }

  /** Connects the ranks without forwarders. */
  private void connectDirectly() throws Exception {
    Endpoint a = ranks.context(0).createEndpoint(1, 0, config);
    Endpoint b = ranks.context(1).createEndpoint(0, 0, config);
    CompletableFuture<Connection> toB = a.connect(b.wire(), deadline());
    CompletableFuture<Connection> toA = b.connect(a.wire(), deadline());
    link = (NetConnection) get(toB);
    back = (NetConnection) get(toA);
  }

  @ParameterizedTest
  @ValueSource(booleans = {false, true})
  void shouldExecuteTheLastMessagesOfAPeerThatHasClosed(boolean staged) throws Exception {
    ranks.close();
    use(NetRanks.ethernet(staged));
    connectDirectly();
    Transfer there = ranks.transfer(List.of(link, back), 0, SIZE);
    // The peer closes its socket meanwhile; a part of the body arrives with the other messages.
    CountDownLatch held = ranks.block(1);
    there.write(0, 0, 40_000).signal(SIZE - 8, new AtomicLong(), 7);
    await().atMost(LIMIT).until(() -> ranks.onAgent(0, () -> !link.hasPosts()));
    link.close();
    ranks.awaitOpen(0, 0);
    held.countDown();
    await().atMost(LIMIT).until(back::hasPeerLeft);
    await().atMost(LIMIT).until(() -> Contents.getLong(there.target(), SIZE - 8) == 7);
    there.assertWritten(0, 0, 40_000);
    assertThat(back.failure()).isNull();
    assertThat(back.resumptions()).isZero();
  }

  @Test
  void shouldLearnThatThePeerHasClosedThoughItDidNotReadAll() throws Exception {
    connectDirectly();
    CountDownLatch peerHeld = ranks.block(1);
    ranks.transfer(List.of(link, back), 0, SIZE).write();
    await().atMost(LIMIT).until(() -> ranks.onAgent(0, () -> !link.hasPosts()));
    CountDownLatch held = ranks.block(0);
    back.close();
    peerHeld.countDown();
    // It does not wait for this end for long.
    ranks.awaitOpen(1, 0);
    held.countDown();
    assertFailure(TransportFailure.class, failureOf(link.flush(LIMIT)), link.left());
    assertThat(link.resumptions()).isZero();
  }
}
