package io.fluxccl.netplugin.ib;

import static io.fluxccl.netplugin.MessageLink.LONG;
import static io.fluxccl.netplugin.MessageLink.await;
import static io.fluxccl.netplugin.MessageLink.failureOf;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.assertj.core.api.Assertions.catchThrowable;

import io.fluxccl.InvalidUsage;
import io.fluxccl.RemoteFailure;
import io.fluxccl.Timeout;
import io.fluxccl.TransportFailure;
import io.fluxccl.netplugin.ConnectionState;
import io.fluxccl.netplugin.MessageLink;
import io.fluxccl.netplugin.NetHandle;
import io.fluxccl.netplugin.NetListenComm;
import io.fluxccl.netplugin.NetPlugin;
import io.fluxccl.netplugin.NetPluginContract;
import io.fluxccl.netplugin.NetRequest;
import io.fluxccl.netplugin.TableOptions;
import io.fluxccl.transport.RdmaOptions;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

/** What the network does over any verbs. */
@org.junit.jupiter.api.Timeout(240)
abstract class IbNetPluginContract extends NetPluginContract {
  static final IbNetOptions OPTIONS = IbNetOptions.DEFAULT.withTimeouts(LONG, LONG);

  private static final int[] SIZES = {0, 1, 15, 4096, 0, 65_535, 1 << 20, 1_000_003, 8 << 20};

  /** Opens a network of one device, which reaches those that were opened before. */
  abstract IbNetPlugin open(IbNetOptions options);

  final IbNetPlugin network(IbNetOptions options) {
    return closing(open(options));
  }

  @Override
  protected NetPlugin network(Duration requests, Duration connects) {
    return network(OPTIONS.withTimeouts(requests, connects));
  }

  @Override
  protected NetPlugin network(TableOptions table) {
    return network(OPTIONS.withTable(table));
  }

  @Override
  protected List<ConnectionState> connections(NetPlugin network) {
    return ((IbNetPlugin) network).connections();
  }

  @Override
  protected int[] sizes() {
    return SIZES;
  }

  @Override
  protected void assertNothingLeft(NetPlugin network) {
    assertThat(((IbNetPlugin) network).port(0).openMemories()).isZero();
  }

  final MessageLink link(IbNetOptions options, int bytes) {
    return new MessageLink(network(options), network(options), bytes);
  }

  @Test
  void shouldCutMessagesAndWaitForRoomInTheSendQueue() {
    RdmaOptions rdma = RdmaOptions.DEFAULT.withSendQueueSize(16).withMaxMessage(256 << 10);
    try (MessageLink link = link(OPTIONS.withRdma(rdma), Arrays.stream(SIZES).sum())) {
      link.moveAll(SIZES, 4);
    }
  }

  @Test
  void shouldCloseTheLinkWithARequestWhoseTimeIsUp() {
    IbNetOptions hasty = OPTIONS.withTimeouts(Duration.ofMillis(50), LONG);
    IbNetPlugin patient = network(OPTIONS);
    try (MessageLink link = new MessageLink(patient, network(hasty), 64)) {
      assertThat(failureOf(link.irecv(0, 64))).isInstanceOf(Timeout.class);
      // So that nothing arrives in memory that was given back.
      assertThat(failureOf(link.isend(0, 64))).isInstanceOf(RemoteFailure.class);
      assertThat(link.target.get(0)).isZero();
    }
  }

  @Test
  void shouldNeedNoMemoryForAMessageWithoutBytes() {
    try (MessageLink link = link(OPTIONS, 64)) {
      link.sourceMemory.close();
      await(link.isend(0, 0), link.irecv(0, 0));
    }
  }

  @Test
  void shouldAllowThirtyTwoRequestsAndRefuseOneMore() {
    try (MessageLink link = link(OPTIONS, 256)) {
      NetRequest[] all = new NetRequest[2 * NetPlugin.MAX_REQUESTS];
      for (int round = 0; round < 5; round++) {
        for (int i = 0; i < NetPlugin.MAX_REQUESTS; i++) {
          link.source.put(i, (byte) (i + 1 + round));
          all[i] = link.isend(i, 1);
          all[NetPlugin.MAX_REQUESTS + i] = link.irecv(i, 1);
        }
        assertThatThrownBy(() -> link.irecv(0, 1))
            .isInstanceOf(InvalidUsage.class)
            .hasMessageContaining("32 requests are in flight");
        assertThatThrownBy(() -> link.isend(0, 1))
            .isInstanceOf(InvalidUsage.class)
            .hasMessageContaining("32 requests are in flight");
        await(all);
        for (int i = 0; i < NetPlugin.MAX_REQUESTS; i++) {
          assertThat(link.target.get(i)).isEqualTo((byte) (i + 1 + round));
        }
      }
    }
  }

  @Test
  void shouldRefuseMoreThanTheReceiveHasRoomForOnBothSides() {
    try (MessageLink link = link(OPTIONS, 256)) {
      NetRequest fits = link.irecv(0, 64);
      NetRequest receive = link.irecv(64, 64);
      link.target.put(128, (byte) 9);
      NetRequest first = link.isend(0, 64);
      NetRequest send = link.isend(64, 128);
      await(fits, first);
      assertThat(failureOf(send))
          .isInstanceOf(InvalidUsage.class)
          .hasMessageContaining("send to ")
          .hasMessageContaining("128 bytes")
          .hasMessageContaining("64 bytes");
      assertThat(failureOf(receive))
          .isInstanceOf(InvalidUsage.class)
          .hasMessageContaining("receive from ")
          .hasMessageContaining("128 bytes")
          .hasMessageContaining("64 bytes");
      assertThat(link.target.get(128)).isEqualTo((byte) 9);
      assertThatThrownBy(() -> link.irecv(0, 64)).isInstanceOf(InvalidUsage.class);
      assertThatThrownBy(() -> link.isend(0, 64)).isInstanceOf(InvalidUsage.class);
    }
  }

  @Test
  void shouldTellTheSenderThatTheReceiverLeft() {
    try (MessageLink link = link(OPTIONS, 64)) {
      NetRequest waiting = link.isend(0, 64);
      link.receive.close();
      assertThat(failureOf(waiting))
          .isInstanceOf(RemoteFailure.class)
          .hasMessageContaining("send to ");
    }
  }

  @Test
  void shouldLeaveMemoryAloneOnceAnEndIsClosed() {
    try (MessageLink link = link(OPTIONS, 4 << 20)) {
      for (int i = 0; i < 4; i++) {
        link.irecv(i << 20, 1 << 20);
      }
      link.receive.close();
      for (int i = 0; i < 4; i++) {
        int offset = i << 20;
        catchThrowable(() -> link.isend(offset, 1 << 20));
      }
      link.send.close();
      for (int i = 0; i < 4 << 20; i += 4096) {
        assertThat(link.target.get(i)).isZero();
      }
      assertThatThrownBy(() -> link.irecv(0, 1))
          .isInstanceOf(InvalidUsage.class)
          .hasMessageContaining("closed");
    }
  }

  @Test
  void shouldNotLetStraysInNorBeWedgedByThem() {
    IbNetPlugin from = network(OPTIONS);
    IbNetPlugin to = network(OPTIONS);
    NetListenComm listener = to.listen(0);
    for (int i = 0; i < 3; i++) {
      byte[] wrong = listener.handle();
      wrong[20] ^= 1; // in the token
      NetHandle stray = new NetHandle(wrong);
      assertThat(
              catchThrowable(
                  () -> {
                    while (from.connect(0, stray) == null) {
                      assertThat(listener.accept()).isNull();
                    }
                  }))
          .isInstanceOf(RemoteFailure.class)
          .hasMessageContaining("connect to ");
    }
    try (MessageLink link = new MessageLink(from, to, listener, 64)) {
      await(link.isend(0, 64), link.irecv(0, 64));
    }
    assertThatThrownBy(() -> from.connect(0, new NetHandle(new byte[] {1, 2, 3})))
        .isInstanceOf(InvalidUsage.class)
        .hasMessageContaining("handle");
  }

  @Test
  void shouldServeConnectionsOfSeveralThreadsAtATime() throws Exception {
    int threads = 4;
    int messages = 300;
    IbNetPlugin from = network(OPTIONS);
    IbNetPlugin to = network(OPTIONS);
    ExecutorService pool = Executors.newFixedThreadPool(threads);
    try {
      List<CompletableFuture<Void>> all = new ArrayList<>();
      for (int t = 0; t < threads; t++) {
        int first = t * messages;
        all.add(CompletableFuture.runAsync(() -> exchange(from, to, first, messages), pool));
      }
      for (CompletableFuture<Void> each : all) {
        each.get(2 * LONG.toSeconds(), TimeUnit.SECONDS);
      }
    } finally {
      pool.shutdownNow();
    }
    assertThat(to.port(0).openMemories()).isZero();
    assertThat(from.port(0).openMemories()).isZero();
  }

  @Test
  void shouldSayWhatTheDeviceSaysOfAFailedWrite() {
    try (MessageLink link = link(OPTIONS, 4096)) {
      NetRequest receive = link.irecv(0, 4096);
      link.targetMemory.close();
      assertThat(failureOf(link.isend(0, 4096)))
          .isInstanceOf(RemoteFailure.class)
          .hasMessageContaining("send to ")
          .hasMessageContaining("IBV_WC_REM_ACCESS_ERR");
      assertThat(failureOf(receive)).isInstanceOf(RemoteFailure.class);
    }
  }

  @Test
  void shouldEndConnectionsInUseWhenAnotherThreadClosesTheNetwork() throws Exception {
    IbNetPlugin from = network(OPTIONS);
    IbNetPlugin to = network(OPTIONS);
    CountDownLatch underWay = new CountDownLatch(100);
    try (MessageLink link = new MessageLink(from, to, 4096)) {
      CompletableFuture<Throwable> ended =
          CompletableFuture.supplyAsync(
              () ->
                  catchThrowable(
                      () -> {
                        while (true) {
                          await(link.irecv(0, 4096), link.isend(0, 4096));
                          underWay.countDown();
                        }
                      }));
      assertThat(underWay.await(LONG.toSeconds(), TimeUnit.SECONDS)).isTrue();
      to.close();
      assertThat(ended.get(LONG.toSeconds(), TimeUnit.SECONDS))
          .isInstanceOfAny(TransportFailure.class, RemoteFailure.class);
    }
    assertThat(from.port(0).openMemories()).isZero();
  }

  private static void exchange(IbNetPlugin from, IbNetPlugin to, int first, int messages) {
    try (MessageLink link = new MessageLink(from, to, 64)) {
      for (int i = 0; i < messages; i++) {
        link.source.putInt(0, first + i);
        await(link.isend(0, 64), link.irecv(0, 64));
        assertThat(link.target.getInt(0)).isEqualTo(first + i);
      }
    }
  }
}
