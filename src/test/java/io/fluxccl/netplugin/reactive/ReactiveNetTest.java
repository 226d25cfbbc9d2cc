// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.reactive;

import static io.fluxccl.netplugin.MessageLink.address;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.Aborted;
import io.fluxccl.InvalidUsage;
import io.fluxccl.RemoteFailure;
import io.fluxccl.Timeout;
import io.fluxccl.netplugin.MessageLink;
import io.fluxccl.netplugin.NetListenComm;
import io.fluxccl.netplugin.NetMemory;
import io.fluxccl.netplugin.NetPlugin;
import io.fluxccl.netplugin.NetRecvComm;
import io.fluxccl.netplugin.NetSendComm;
import io.fluxccl.netplugin.PointerType;
import io.fluxccl.netplugin.tcp.TcpNetPlugin;
import io.fluxccl.netplugin.tcp.TcpOptions;
import io.fluxccl.netplugin.vendor.NativeNetPlugin;
import io.fluxccl.testing.RequiresNativeLibrary;
import io.fluxccl.testing.TestNet;
import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import reactor.core.Disposable;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;
import reactor.test.StepVerifier;
import reactor.util.function.Tuple2;
import reactor.util.function.Tuples;

@RequiresNativeLibrary
@org.junit.jupiter.api.Timeout(120)
class ReactiveNetTest {
  private static final Duration LONG = Duration.ofSeconds(60);
  private static final Duration SHORT = Duration.ofMillis(100);
  private static final int SIZE = 1 << 20;

  @TempDir private static Path folder;

  private final ByteBuffer source = MessageLink.memory(SIZE);
  private final ByteBuffer target = MessageLink.memory(SIZE);
  private NetPlugin plugin;
  private ReactiveNet net;
  private NetSendComm sender;
  private NetRecvComm receiver;
  private NetMemory from;
  private NetMemory to;

  @BeforeEach
  void open() throws Exception {
    plugin = NativeNetPlugin.open(TestNet.library(folder, 11, "NULL_REQUESTS=20").toString());
    net = ReactiveNet.of(plugin);
    Tuple2<NetSendComm, NetRecvComm> ends = connection(net);
    sender = ends.getT1();
    receiver = ends.getT2();
    from = net.register(sender, address(source), SIZE, PointerType.HOST, LONG).block();
    to = net.register(receiver, address(target), SIZE, PointerType.HOST, LONG).block();
  }

  /** Connects both ends of the first device. */
  static Tuple2<NetSendComm, NetRecvComm> connection(ReactiveNet net) {
    NetListenComm listener = net.listen(0, LONG).block();
    return Mono.zip(net.connect(0, listener.handle(), LONG), net.accept(listener, LONG))
        .doFinally(end -> net.close(listener, LONG).subscribe())
        .block();
  }

  @AfterEach
  void close() {
    net.close();
    plugin.close();
  }

  private Mono<Long> send(int offset, int size, int tag) {
    return net.send(sender, address(source) + offset, size, tag, from, LONG);
  }

  private Mono<Long> receive(int offset, int size, Duration timeout) {
    return net.receive(receiver, address(target) + offset, size, 0, to, timeout);
  }

  private static void assertCompletes(Mono<?> operation) {
    StepVerifier.create(operation.then()).expectComplete().verify(LONG);
  }

  private static void assertFails(Mono<?> operation, Class<? extends Throwable> type) {
    StepVerifier.create(operation).expectError(type).verify(LONG);
  }

  @Test
  void shouldSendAndReceiveWhenSubscribed() {
    source.putLong(0, 42);
    Mono<Long> receive = receive(0, SIZE, LONG);
    Mono<Long> send = send(0, 1000, 0);
    assertThat(target.getLong(0)).isZero();
    for (int round = 0; round < 3; round++) {
      StepVerifier.create(Mono.zip(send, receive))
          .expectNext(Tuples.of(1000L, 1000L))
          .expectComplete()
          .verify(LONG);
    }
    assertThat(target.getLong(0)).isEqualTo(42);
  }

  @Test
  void shouldKeepTheOrderOfSubscriptions() {
    for (int i = 0; i < 20; i++) {
      source.putLong(i * 8, 100 + i);
    }
    Flux<Long> sends = Flux.range(0, 20).flatMap(i -> send(i * 8, 8, 0), 20);
    Flux<Long> receives = Flux.range(0, 20).flatMap(i -> receive(i * 8, 8, LONG), 20);
    StepVerifier.create(Flux.merge(sends, receives).count())
        .expectNext(40L)
        .expectComplete()
        .verify(LONG);
    assertThat(target.slice(0, 160)).isEqualTo(source.slice(0, 160));
  }

  @Test
  void shouldReceiveAGroup() {
    long[] addresses = {address(target), address(target) + 100};
    Mono<long[]> group =
        net.receive(
            receiver,
            addresses,
            new long[] {100, 100},
            new int[] {1, 2},
            new NetMemory[] {to, to},
            LONG);
    StepVerifier.create(Mono.zip(group, send(0, 20, 2).then(send(0, 10, 1))))
        .assertNext(both -> assertThat(both.getT1()).containsExactly(10, 20))
        .expectComplete()
        .verify(LONG);
  }

  private static Mono<Void> flush(
      ReactiveNet net, NetRecvComm end, long address, NetMemory memory) {
    long[] addresses = {address, address + 100};
    NetMemory[] memories = {memory, memory};
    return net.flush(end, addresses, new long[] {100, 100}, memories, LONG);
  }

  @Test
  void shouldFlushReceivedData() {
    for (int round = 0; round < 3; round++) {
      assertCompletes(flush(net, receiver, address(target), to));
    }
    assertFails(flush(net, receiver, 1, to), InvalidUsage.class);
  }

  @Test
  void shouldFlushAtOnceWhereTheNetworkHasNothingToFlush() {
    try (NetPlugin tcp = new TcpNetPlugin(TcpOptions.DEFAULT.withInterfaces("=lo"));
        ReactiveNet overTcp = ReactiveNet.of(tcp)) {
      NetRecvComm end = connection(overTcp).getT2();
      NetMemory memory =
          overTcp.register(end, address(target), SIZE, PointerType.HOST, LONG).block();
      assertCompletes(flush(overTcp, end, address(target), memory));
    }
  }

  @Test
  void shouldRegisterADmaBuf() throws Exception {
    StepVerifier.create(
            net.registerDmaBuf(sender, address(source), SIZE, PointerType.HOST, 0, 1, LONG))
        .expectErrorSatisfies(
            e -> assertThat(e).isInstanceOf(InvalidUsage.class).hasMessageContaining("DMABUF"))
        .verify(LONG);
    try (NetPlugin reaching =
            NativeNetPlugin.open(TestNet.library(folder, 11, "POINTERS=7").toString());
        ReactiveNet other = ReactiveNet.of(reaching)) {
      NetSendComm end = connection(other).getT1();
      StepVerifier.create(
              other
                  .registerDmaBuf(end, address(source), SIZE, PointerType.HOST, 0, 1, LONG)
                  .flatMap(memory -> other.send(end, address(source), 8, 0, memory, LONG)))
          .expectNext(8L)
          .expectComplete()
          .verify(LONG);
    }
  }

  @Test
  void shouldTimeOutNamingThePeer() {
    StepVerifier.create(receive(0, 8, SHORT))
        .expectErrorSatisfies(
            error ->
                assertThat(error)
                    .isInstanceOf(Timeout.class)
                    .hasMessageContaining("receive of 8 bytes from the peer on test0")
                    .hasMessageContaining("100 ms"))
        .verify(LONG);
    assertFails(net.listen(0, LONG).flatMap(other -> net.accept(other, SHORT)), Timeout.class);
  }

  @Test
  void shouldReceiveTheNextMessageAfterAReceiveWasCancelled() {
    Disposable first = receive(0, 8, LONG).subscribe();
    // This completes only after the receive has begun. The receive takes and discards the next
    // message.
    net.register(receiver, address(target), 8, PointerType.HOST, LONG).block();
    first.dispose();
    source.putLong(0, 1).putLong(8, 2);
    assertCompletes(Mono.zip(send(0, 8, 0).then(send(8, 8, 0)), receive(8, 8, LONG)));
    assertThat(target.getLong(0)).isEqualTo(source.getLong(0));
    assertThat(target.getLong(8)).isEqualTo(source.getLong(8));
  }

  @Test
  void shouldFailWithTheReasonOfThePlugin() {
    assertFails(net.close(sender, LONG).then(receive(0, 8, LONG)), RemoteFailure.class);
    assertFails(send(0, 8, 0), InvalidUsage.class);
    assertFails(net.connect(7, new byte[NetPlugin.HANDLE_BYTES], LONG), InvalidUsage.class);
  }

  @Test
  void shouldFailOperationsInFlightIfClosed() {
    CompletableFuture<Long> receiving = receive(0, 8, LONG).toFuture();
    net.close();
    net.close();
    assertThat(receiving)
        .failsWithin(LONG)
        .withThrowableThat()
        .havingCause()
        .isInstanceOfAny(Aborted.class, InvalidUsage.class);
    assertFails(net.listen(0, LONG), InvalidUsage.class);
  }
}
