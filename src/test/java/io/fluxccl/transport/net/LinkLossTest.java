// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import static io.fluxccl.transport.net.NetRanks.LIMIT;
import static io.fluxccl.transport.net.NetRanks.get;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.awaitility.Awaitility.await;

import io.fluxccl.Aborted;
import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.fluxccl.TransportFailure;
import io.fluxccl.device.host.HostDevice;
import io.fluxccl.netplugin.tcp.TcpNetPlugin;
import io.fluxccl.netplugin.tcp.TcpOptions;
import io.fluxccl.testing.Rounds;
import io.fluxccl.testing.TcpForwarder;
import io.fluxccl.tls.Tls;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.Contents;
import io.fluxccl.transport.Endpoint;
import io.fluxccl.transport.EndpointConfig;
import io.fluxccl.transport.RegisteredMemory;
import java.io.IOException;
import java.net.InetAddress;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Supplier;
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
    CompletableFuture<Connection> toB = a.connect(forwarded(b, 1), Deadline.after(LIMIT));
    CompletableFuture<Connection> toA = b.connect(forwarded(a, 0), Deadline.after(LIMIT));
    link = (NetConnection) get(toB);
    back = (NetConnection) get(toA);
  }

  private byte[] forwarded(Endpoint end, int rank) throws IOException {
    EndpointWire wire = EndpointWire.decode(end.wire(), rank);
    ByteBuffer handle = ByteBuffer.wrap(wire.handles()[0]).order(ByteOrder.LITTLE_ENDIAN);
    TcpForwarder forwarder = new TcpForwarder(handle.getInt(8));
    forwarders.add(forwarder);
    handle.putInt(8, forwarder.port());
    return wire.encode();
  }

  private void reset() {
    forwarders.forEach(TcpForwarder::reset);
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
    RegisteredMemory there = ranks.memory(1, SIZE + 8);
    RegisteredMemory here = ranks.memory(0, SIZE + 8);
    RegisteredMemory source = ranks.filled(0, SIZE, random.nextInt());
    RegisteredMemory other = ranks.filled(1, SIZE, random.nextInt());
    AtomicLong counter = new AtomicLong();
    RegisteredMemory remote = ranks.seenByPeer(there);
    RegisteredMemory remoteBack = ranks.seenByPeer(here);
    for (int at = 0, n = 1; at < SIZE; at += n) {
      n = Math.min(SIZE - at, random.nextInt(20) == 0 ? 900_000 : 1 + random.nextInt(9_000));
      link.write(remote, at, source, at, n);
      link.updateAndSync(remote, SIZE, counter, at + n);
    }
    back.write(remoteBack, 0, other, 0, SIZE);
    CompletableFuture<Void> flush = link.flush(LIMIT.multipliedBy(3));
    CompletableFuture<Void> flushBack = back.flush(LIMIT.multipliedBy(3));
    meanwhile.run();
    get(flush);
    get(flushBack);
    assertThat(Contents.getLong(there, SIZE)).isEqualTo(SIZE);
    assertThat(Contents.get(there, 0, SIZE)).isEqualTo(Contents.get(source, 0, SIZE));
    assertThat(Contents.get(here, 0, SIZE)).isEqualTo(Contents.get(other, 0, SIZE));
    List.of(there, here, source, other).forEach(RegisteredMemory::close);
  }

  /** Resets all sockets when some more bytes have passed. */
  private void resetSoon() {
    TcpForwarder forwarder = forwarders.get(random.nextInt(2));
    long at = forwarder.forwarded() + random.nextInt(SIZE);
    long end = System.nanoTime() + Duration.ofMillis(200).toNanos();
    while (forwarder.forwarded() < at && System.nanoTime() < end) {
      Thread.yield();
    }
    reset();
  }

  private enum Network {
    ETHERNET(() -> NetRanks.ethernet(false)),
    ETHERNET_STAGED(() -> NetRanks.ethernet(true)),
    ETHERNET_TLS(NetRanks::ethernetOverTls),
    NET(() -> net(Optional.empty())),
    NET_TLS(() -> net(Optional.of(Tls.selfSigned())));

    private final Supplier<NetRanks> ranks;

    Network(Supplier<NetRanks> ranks) {
      this.ranks = ranks;
    }

    private static NetRanks net(Optional<Tls> tls) {
      TcpOptions several = TcpOptions.DEFAULT.withStreams(3, 2).withTls(tls);
      return new NetRanks(TcpNetPlugin.at(InetAddress.getLoopbackAddress(), several));
    }
  }

  @ParameterizedTest
  @EnumSource
  void shouldResumeIfItsSocketsAreResetAtAnyTime(Network network) throws Exception {
    ranks.close();
    use(network.ranks.get());
    connect();
    for (int round = 0; round < Rounds.of(5, 50); round++) {
      checkWrites(this::resetSoon);
    }
    checkWrites();
    assertThat(link.failure()).isNull();
    assertThat(link.resumptions()).isPositive();
  }

  @Test
  void shouldResumeIfOnlyOneDirectionIsReset() throws Exception {
    connect();
    for (int round = 0; round < 6; round++) {
      forwarders.get(round % 2).reset();
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
    cut();
    reset();
    awaitResumed(link, 1);
    CompletableFuture<Void> flush = link.flush(Duration.ofMillis(300));
    assertThatThrownBy(() -> get(flush))
        .hasCauseInstanceOf(io.fluxccl.Timeout.class)
        .hasMessageContaining("connection of rank 0 to rank 1")
        .hasMessageContaining("the link is down: ");
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
    assertThat(failure)
        .isInstanceOf(TransportFailure.class)
        .hasMessageContaining("connection of rank " + rank + " to rank " + peer)
        .hasMessageContaining("no other link within 500 ms");
    assertThat(failure.rank()).isEqualTo(peer);
  }

  @Test
  void shouldFailAtOnceWhenThePeerIsGoneWhileItResumes() throws Exception {
    connect();
    cut();
    reset();
    awaitResumed(link, 1);
    ranks.sever(1);
    forwarders.forEach(TcpForwarder::close);
    FluxCclException failure = get(link.failed());
    assertThat(failure)
        .isInstanceOf(TransportFailure.class)
        .hasMessageContaining("can't resume")
        .hasMessageContaining("is its process alive");
    assertThat(failure.rank()).isEqualTo(1);
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
    cut();
    reset();
    awaitResumed(link, 1);
    link.close();
    back.close();
    assertThat(get(link.failed())).isInstanceOf(Aborted.class);
    for (int rank = 0; rank < 2; rank++) {
      NetContext context = ranks.context(rank);
      await().atMost(LIMIT).until(() -> context.openConnections() == 0);
    }
  }

  @Test
  @Tag("long")
  void shouldTakeNoPeerForLostThatIsOnlyHeldUp() throws Exception {
    ranks.close();
    WatchedDevice device = new WatchedDevice(HostDevice.create());
    use(NetRanks.ethernet(buffer -> true, HostDevice.create(), device));
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
  void shouldResendAfterTheNetworkCorruptedData() throws Exception {
    config = config.withChecksums(true);
    connect();
    for (int round = 0; round < 5; round++) {
      long before = link.resumptions();
      forwarders.get(0).swapWords(1);
      checkWrites();
      assertThat(link.resumptions()).isGreaterThan(before);
    }
  }

  @Test
  void shouldResendAfterTlsDetectedCorruptedData() throws Exception {
    ranks.close();
    use(NetRanks.ethernetOverTls());
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
    RegisteredMemory remote = ranks.seenByPeer(ranks.memory(1, SIZE));
    RegisteredMemory source = ranks.filled(0, SIZE, 5);
    forwarders.get(0).swapWords(1000);
    link.write(remote, 0, source, 0, SIZE);
    FluxCclException failure = get(back.failed());
    assertThat(failure)
        .isInstanceOf(TransportFailure.class)
        .hasMessageContaining("connection of rank 1 to rank 0")
        .hasMessageContaining("wrong checksum");
    assertThat(failure.rank()).isZero();
    assertThat(get(link.failed())).isInstanceOf(TransportFailure.class);
  }
}
