// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.reactive;

import static io.fluxccl.netplugin.MessageLink.address;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.mockito.ArgumentMatchers.any;
import static org.mockito.ArgumentMatchers.anyInt;
import static org.mockito.Mockito.mock;
import static org.mockito.Mockito.never;
import static org.mockito.Mockito.timeout;
import static org.mockito.Mockito.verify;
import static org.mockito.Mockito.when;

import io.fluxccl.InvalidUsage;
import io.fluxccl.Timeout;
import io.fluxccl.netplugin.MessageLink;
import io.fluxccl.netplugin.NetComm;
import io.fluxccl.netplugin.NetHandle;
import io.fluxccl.netplugin.NetListenComm;
import io.fluxccl.netplugin.NetMemory;
import io.fluxccl.netplugin.NetPlugin;
import io.fluxccl.netplugin.NetRecvComm;
import io.fluxccl.netplugin.NetSendComm;
import io.fluxccl.netplugin.PointerType;
import io.fluxccl.netplugin.tcp.TcpNetPlugin;
import io.fluxccl.netplugin.tcp.TcpOptions;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import reactor.core.Disposable;
import reactor.test.StepVerifier;
import reactor.util.function.Tuple2;

/** Operations that wait for an earlier operation of the same connection or listener. */
@org.junit.jupiter.api.Timeout(120)
class ReactiveNetOrderTest {
  private static final Duration LONG = Duration.ofSeconds(60);
  private static final Duration SHORT = Duration.ofMillis(100);
  private static final int SIZE = 64 << 20;

  private final NetPlugin plugin =
      new TcpNetPlugin(
          TcpOptions.DEFAULT.withInterfaces("=lo").withStreams(1, 1).withTimeouts(LONG, LONG));
  private final ReactiveNet net = ReactiveNet.of(plugin);

  @AfterEach
  void close() {
    net.close();
    plugin.close();
  }

  private Tuple2<NetSendComm, NetRecvComm> connection() {
    return ReactiveNetTest.connection(net);
  }

  private NetMemory register(NetComm comm, ByteBuffer memory) {
    return net.register(comm, address(memory), memory.capacity(), PointerType.HOST, LONG).block();
  }

  @Test
  void shouldKeepTheDeadlinesOfOperationsThatWaitForAnEarlierOne() throws Exception {
    NetListenComm listener = mock(NetListenComm.class);
    CompletableFuture<NetRecvComm> patient = net.accept(listener, LONG).toFuture();
    CompletableFuture<NetRecvComm> behind = net.accept(listener, SHORT).toFuture();
    CompletableFuture<Void> close = net.close(listener, SHORT).toFuture();
    for (CompletableFuture<?> late : new CompletableFuture<?>[] {behind, close}) {
      assertThatThrownBy(() -> late.get(10, TimeUnit.SECONDS)).hasCauseInstanceOf(Timeout.class);
    }
    assertThat(patient.isDone()).isFalse();
    verify(listener, never()).close();
  }

  @Test
  void shouldCloseAfterEarlierOperations() throws Exception {
    Tuple2<NetSendComm, NetRecvComm> ends = connection();
    ByteBuffer source = MessageLink.memory(SIZE);
    ByteBuffer target = MessageLink.memory(SIZE);
    source.put(SIZE - 1, (byte) 7);
    NetMemory from = register(ends.getT1(), source);
    NetMemory to = register(ends.getT2(), target);
    CompletableFuture<Long> sent =
        net.send(ends.getT1(), address(source), SIZE, 0, from, LONG).toFuture();
    CompletableFuture<Void> memoryClosed = net.close(from, LONG).toFuture();
    CompletableFuture<Void> commClosed = net.close(ends.getT1(), LONG).toFuture();
    // When this returns, the loop has taken the operations above. It moves no data of them.
    net.listen(0, LONG).flatMap(listener -> net.close(listener, LONG)).block();
    assertThat(memoryClosed).isNotDone();
    assertThat(commClosed).isNotDone();
    long got = net.receive(ends.getT2(), address(target), SIZE, 0, to, LONG).block();
    assertThat(got).isEqualTo(SIZE);
    assertThat(target.get(SIZE - 1)).isEqualTo((byte) 7);
    assertThat(sent.get(10, TimeUnit.SECONDS)).isEqualTo(SIZE);
    memoryClosed.get(10, TimeUnit.SECONDS);
    commClosed.get(10, TimeUnit.SECONDS);
  }

  @Test
  void shouldCloseWhenItsTimeoutExpiresIfAnEarlierOperationHangs() {
    Tuple2<NetSendComm, NetRecvComm> ends = connection();
    ByteBuffer target = MessageLink.memory(64);
    NetMemory to = register(ends.getT2(), target);
    CompletableFuture<Long> waiting =
        net.receive(ends.getT2(), address(target), 64, 0, to, LONG).toFuture();
    StepVerifier.create(net.close(ends.getT2(), SHORT)).expectComplete().verify(LONG);
    assertThatThrownBy(() -> waiting.get(10, TimeUnit.SECONDS))
        .hasCauseInstanceOf(InvalidUsage.class);
  }

  @Test
  void shouldCloseAtOnceIfEarlierOperationsWereCancelledOrTimedOut() {
    Tuple2<NetSendComm, NetRecvComm> ends = connection();
    ByteBuffer target = MessageLink.memory(64);
    NetMemory to = register(ends.getT2(), target);
    Disposable cancelled = net.receive(ends.getT2(), address(target), 64, 0, to, LONG).subscribe();
    net.receive(ends.getT2(), address(target), 64, 0, to, SHORT)
        .onErrorComplete(Timeout.class)
        .block();
    cancelled.dispose();
    StepVerifier.create(net.close(ends.getT2(), LONG)).expectComplete().verify(LONG.dividedBy(6));
  }

  @Test
  void shouldAbandonConnectsWhenItCloses() throws Exception {
    AutoCloseable begun = mock(AutoCloseable.class);
    NetPlugin slow = mock(NetPlugin.class);
    when(slow.name()).thenReturn("slow");
    when(slow.devices()).thenReturn(1);
    when(slow.connect(anyInt(), any()))
        .thenAnswer(
            call -> {
              call.<NetHandle>getArgument(1).keep(begun);
              return null;
            });
    try (ReactiveNet connecting = ReactiveNet.of(slow)) {
      connecting.connect(0, new byte[8], LONG).subscribe(comm -> {}, error -> {});
      verify(slow, timeout(10_000).atLeastOnce()).connect(anyInt(), any());
      verify(begun, never()).close();
    }
    verify(begun).close();
  }
}
