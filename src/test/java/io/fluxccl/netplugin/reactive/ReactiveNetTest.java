// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.reactive;

import static io.fluxccl.netplugin.NetLink.address;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.Aborted;
import io.fluxccl.InvalidUsage;
import io.fluxccl.RemoteFailure;
import io.fluxccl.Timeout;
import io.fluxccl.netplugin.NetLink;
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
import java.util.List;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import reactor.core.Disposable;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;
import reactor.test.StepVerifier;

@RequiresNativeLibrary
@org.junit.jupiter.api.Timeout(120)
class ReactiveNetTest {
  private static final Duration LONG = Duration.ofSeconds(60);
  private static final Duration SHORT = Duration.ofMillis(100);
  private static final int SIZE = 1 << 20;

  @TempDir private static Path folder;

  private final ByteBuffer source = NetLink.memory(SIZE);
  private final ByteBuffer target = NetLink.memory(SIZE);
  private NetPlugin plugin;
  private ReactiveNet net;
  private NetListenComm listener;
  private NetSendComm sender;
  private NetRecvComm receiver;
  private NetMemory from;
  private NetMemory to;

  @BeforeEach
  void open() throws Exception {
    plugin = NativeNetPlugin.open(TestNet.library(folder, 11, "NULL_REQUESTS=20").toString());
    net = ReactiveNet.of(plugin);
    listener = net.listen(0, LONG).block();
    Mono.zip(net.connect(0, listener.handle(), LONG), net.accept(listener, LONG))
        .doOnNext(
            ends -> {
              sender = ends.getT1();
              receiver = ends.getT2();
            })
        .block();
    from = net.register(sender, address(source), SIZE, PointerType.HOST, LONG).block();
    to = net.register(receiver, address(target), SIZE, PointerType.HOST, LONG).block();
  }

  @AfterEach
  void close() {
    net.close();
    plugin.close();
  }

  @Test
  void shouldSendAndReceiveWhenSubscribed() {
    source.putLong(0, 42);
    Mono<Long> receive = net.receive(receiver, address(target), SIZE, 0, to, LONG);
    Mono<Long> send = net.send(sender, address(source), 1000, 0, from, LONG);
    assertThat(target.getLong(0)).isZero();
    for (int round = 0; round < 3; round++) {
      StepVerifier.create(Mono.zip(send, receive))
          .assertNext(
              sizes -> {
                assertThat(sizes.getT1()).isEqualTo(1000);
                assertThat(sizes.getT2()).isEqualTo(1000);
              })
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
    Flux<Long> sends =
        Flux.range(0, 20)
            .flatMap(i -> net.send(sender, address(source) + i * 8, 8, 0, from, LONG), 20);
    Flux<Long> receives =
        Flux.range(0, 20)
            .flatMap(i -> net.receive(receiver, address(target) + i * 8, 8, 0, to, LONG), 20);
    StepVerifier.create(Flux.merge(sends, receives).count())
        .expectNext(40L)
        .expectComplete()
        .verify(LONG);
    assertThat(target.slice(0, 160)).isEqualTo(source.slice(0, 160));
  }

  @Test
  void shouldReceiveAGroup() {
    Mono<long[]> group =
        net.receive(
            receiver,
            new long[] {address(target), address(target) + 100},
            new long[] {100, 100},
            new int[] {1, 2},
            new NetMemory[] {to, to},
            LONG);
    Mono<Long> sends =
        net.send(sender, address(source), 20, 2, from, LONG)
            .then(net.send(sender, address(source), 10, 1, from, LONG));
    StepVerifier.create(Mono.zip(group, sends).map(both -> both.getT1()))
        .assertNext(sizes -> assertThat(sizes).containsExactly(10, 20))
        .expectComplete()
        .verify(LONG);
  }

  @Test
  void shouldFlushReceivedData() {
    Mono<Void> flush =
        net.flush(
            receiver,
            new long[] {address(target), address(target) + 100},
            new long[] {100, 100},
            new NetMemory[] {to, to},
            LONG);
    for (int round = 0; round < 3; round++) {
      StepVerifier.create(flush).expectComplete().verify(LONG);
    }
    StepVerifier.create(
            net.flush(receiver, new long[] {1}, new long[] {1}, new NetMemory[] {to}, LONG))
        .expectError(InvalidUsage.class)
        .verify(LONG);
  }

  @Test
  void shouldFlushAtOnceWhereTheNetworkHasNothingToFlush() {
    try (NetPlugin tcp = new TcpNetPlugin(TcpOptions.DEFAULT.withInterfaces("=lo"));
        ReactiveNet overTcp = ReactiveNet.of(tcp)) {
      NetListenComm listening = overTcp.listen(0, LONG).block();
      NetRecvComm end =
          Mono.zip(overTcp.accept(listening, LONG), overTcp.connect(0, listening.handle(), LONG))
              .map(ends -> ends.getT1())
              .block();
      NetMemory memory =
          overTcp.register(end, address(target), SIZE, PointerType.HOST, LONG).block();
      StepVerifier.create(
              overTcp.flush(
                  end,
                  new long[] {address(target)},
                  new long[] {8},
                  new NetMemory[] {memory},
                  LONG))
          .expectComplete()
          .verify(LONG);
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
      NetListenComm listening = other.listen(0, LONG).block();
      NetSendComm end =
          Mono.zip(other.connect(0, listening.handle(), LONG), other.accept(listening, LONG))
              .map(ends -> ends.getT1())
              .block();
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
    StepVerifier.create(net.receive(receiver, address(target), 8, 0, to, SHORT))
        .expectErrorSatisfies(
            error ->
                assertThat(error)
                    .isInstanceOf(Timeout.class)
                    .hasMessageContaining("receive of 8 bytes from the peer on test0")
                    .hasMessageContaining("100 ms"))
        .verify(LONG);
    StepVerifier.create(net.listen(0, LONG).flatMap(other -> net.accept(other, SHORT)))
        .expectError(Timeout.class)
        .verify(LONG);
  }

  @Test
  void shouldReceiveTheNextMessageAfterAReceiveWasCancelled() {
    Disposable first = net.receive(receiver, address(target), 8, 0, to, LONG).subscribe();
    // This completes only after the receive has begun. The receive takes and discards the next
    // message.
    net.register(receiver, address(target), 8, PointerType.HOST, LONG).block();
    first.dispose();
    source.putLong(0, 1).putLong(8, 2);
    Mono<Long> sends =
        net.send(sender, address(source), 8, 0, from, LONG)
            .then(net.send(sender, address(source) + 8, 8, 0, from, LONG));
    StepVerifier.create(Mono.zip(sends, net.receive(receiver, address(target) + 8, 8, 0, to, LONG)))
        .expectNextCount(1)
        .expectComplete()
        .verify(LONG);
    assertThat(target.getLong(0)).isEqualTo(source.getLong(0));
    assertThat(target.getLong(8)).isEqualTo(source.getLong(8));
  }

  @Test
  void shouldFailWithTheReasonOfThePlugin() {
    StepVerifier.create(
            net.close(sender, LONG).then(net.receive(receiver, address(target), 8, 0, to, LONG)))
        .expectError(RemoteFailure.class)
        .verify(LONG);
    StepVerifier.create(net.send(sender, address(source), 8, 0, from, LONG))
        .expectError(InvalidUsage.class)
        .verify(LONG);
    StepVerifier.create(net.connect(7, listener.handle(), LONG))
        .expectError(InvalidUsage.class)
        .verify(LONG);
  }

  @Test
  void shouldFailOperationsInFlightIfClosed() {
    List<Throwable> errors = new java.util.concurrent.CopyOnWriteArrayList<>();
    net.receive(receiver, address(target), 8, 0, to, LONG).subscribe(size -> {}, errors::add);
    net.close();
    net.close();
    Awaitility.await().untilAsserted(() -> assertThat(errors).hasSize(1));
    assertThat(errors.get(0)).isInstanceOfAny(Aborted.class, InvalidUsage.class);
    StepVerifier.create(net.listen(0, LONG)).expectError(InvalidUsage.class).verify(LONG);
  }
}
