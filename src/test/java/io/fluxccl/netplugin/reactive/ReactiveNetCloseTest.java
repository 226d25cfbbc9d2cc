// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.reactive;

import static io.fluxccl.testing.FailureAssertions.assertThrows;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.mockito.ArgumentMatchers.anyInt;
import static org.mockito.Mockito.doReturn;
import static org.mockito.Mockito.mock;
import static org.mockito.Mockito.never;
import static org.mockito.Mockito.timeout;
import static org.mockito.Mockito.verify;
import static org.mockito.Mockito.when;

import io.fluxccl.Aborted;
import io.fluxccl.InvalidUsage;
import io.fluxccl.netplugin.NetComm;
import io.fluxccl.netplugin.NetListenComm;
import io.fluxccl.netplugin.NetMemory;
import io.fluxccl.netplugin.NetPlugin;
import io.fluxccl.netplugin.NetSendComm;
import io.fluxccl.netplugin.PointerType;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.reactivestreams.Subscription;
import reactor.core.Disposable;
import reactor.core.publisher.BaseSubscriber;
import reactor.core.publisher.Mono;
import reactor.test.StepVerifier;

/** Over a plugin whose listen does not return. */
@Timeout(120)
class ReactiveNetCloseTest {
  private static final Duration LONG = Duration.ofSeconds(60);
  private static final Duration SHORT = Duration.ofMillis(50);

  private final NetPlugin plugin = mock(NetPlugin.class);
  private final NetListenComm listener = mock(NetListenComm.class);
  private final CountDownLatch called = new CountDownLatch(1);
  private final CountDownLatch returns = new CountDownLatch(1);

  @BeforeEach
  void script() {
    when(plugin.name()).thenReturn("stuck");
    when(plugin.devices()).thenReturn(1);
    when(plugin.listen(anyInt())).thenAnswer(call -> whenReleased(listener));
  }

  private <T> T whenReleased(T result) throws InterruptedException {
    called.countDown();
    returns.await();
    return result;
  }

  private static Thread loopThread() {
    return Thread.getAllStackTraces().keySet().stream()
        .filter(thread -> thread.getName().equals("fluxccl-reactive-net-stuck"))
        .findFirst()
        .orElse(null);
  }

  private static void assertAborted(CompletableFuture<?> future) {
    assertThatThrownBy(() -> future.get(LONG.toSeconds(), TimeUnit.SECONDS))
        .isInstanceOf(ExecutionException.class)
        .hasCauseInstanceOf(Aborted.class);
  }

  @Test
  void shouldTimeOutNamingPluginAndCallAndEndQueuedCallsIfACallHangs() throws Exception {
    ReactiveNet net = ReactiveNet.of(plugin);
    CompletableFuture<NetListenComm> stuck = net.listen(0, LONG).toFuture();
    called.await();
    CompletableFuture<NetSendComm> behind = net.connect(0, new byte[8], LONG).toFuture();

    for (int time = 0; time < 2; time++) {
      assertThrows(
          io.fluxccl.Timeout.class,
          () -> net.close(SHORT),
          "fluxccl-reactive-net-stuck",
          "listen on device 0",
          "50 ms");
    }

    assertAborted(stuck);
    assertThatThrownBy(() -> behind.get(LONG.toSeconds(), TimeUnit.SECONDS))
        .hasCauseInstanceOf(io.fluxccl.FluxCclException.class);
    StepVerifier.create(net.listen(0, LONG)).expectError(InvalidUsage.class).verify(LONG);
    assertThat(loopThread()).isNotNull();

    returns.countDown();
    Awaitility.await().atMost(LONG).until(() -> loopThread() == null);
    net.close(LONG);
  }

  @Test
  void shouldWaitForACallThatReturnsInTime() throws Exception {
    ReactiveNet net = ReactiveNet.of(plugin);
    CompletableFuture<NetListenComm> slow = net.listen(0, LONG).toFuture();
    called.await();
    CompletableFuture<Void> closing = CompletableFuture.runAsync(() -> net.close(LONG));
    assertThat(slow.isDone()).isFalse();
    returns.countDown();
    closing.get(LONG.toSeconds(), TimeUnit.SECONDS);
    assertThat(slow.get(LONG.toSeconds(), TimeUnit.SECONDS)).isNotNull();
    assertThat(loopThread()).isNull();
  }

  /** Cancels once the plugin is in the call, which then returns. */
  private void cancelDuring(Mono<?> operation) throws InterruptedException {
    Disposable subscriber = operation.subscribe();
    called.await();
    subscriber.dispose();
    returns.countDown();
  }

  @Test
  void shouldCloseAListenerIfItsSubscriberHasCancelled() throws Exception {
    try (ReactiveNet net = ReactiveNet.of(plugin)) {
      cancelDuring(net.listen(0, LONG));
      verify(listener, timeout(10_000)).close();
    }
  }

  @Test
  void shouldCloseARegistrationIfItsSubscriberHasCancelled() throws Exception {
    NetMemory memory = mock(NetMemory.class);
    NetComm comm = mock(NetComm.class);
    when(comm.register(1, 8, PointerType.HOST)).thenAnswer(call -> whenReleased(memory));
    try (ReactiveNet net = ReactiveNet.of(plugin)) {
      cancelDuring(net.register(comm, 1, 8, PointerType.HOST, LONG));
      verify(memory, timeout(10_000)).close();
    }
  }

  /** The listener is emitted but not delivered, because the subscriber has requested none yet. */
  @Test
  void shouldCloseAListenerIfItIsCancelledBetweenEmissionAndDelivery() throws Exception {
    NetListenComm later = mock(NetListenComm.class);
    doReturn(listener, later).when(plugin).listen(anyInt());
    try (ReactiveNet net = ReactiveNet.of(plugin)) {
      BaseSubscriber<NetListenComm> waiting =
          new BaseSubscriber<>() {
            @Override
            protected void hookOnSubscribe(Subscription subscription) {
              // Asks for nothing.
            }
          };
      net.listen(0, LONG).subscribe(waiting);
      // The loop runs this after the first listen, so that one has been emitted when this returns.
      net.listen(0, LONG).block(LONG);
      verify(listener, never()).close();
      waiting.cancel();
      verify(listener, timeout(10_000)).close();
      verify(later, never()).close();
    }
  }
}
