// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import static io.fluxccl.testing.FailureAssertions.assertThrows;
import static org.assertj.core.api.Assertions.assertThat;
import static org.mockito.Mockito.mock;
import static org.mockito.Mockito.when;

import io.fluxccl.TransportFailure;
import java.io.IOException;
import java.nio.channels.spi.AbstractSelector;
import java.nio.channels.spi.SelectorProvider;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.AutoClose;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(120)
class NetWaiterTest {
  private static final int ROUNDS = 1_000;

  @AutoClose private final NetWaiter waiter = new NetWaiter();
  private final AtomicInteger asked = new AtomicInteger();
  private final AtomicInteger woken = new AtomicInteger();

  @Test
  void shouldSleepOnceItHasTakenAllTokens() throws Exception {
    Thread waker = new Thread(this::wakeInEachRound);
    waker.setDaemon(true);
    waker.start();
    for (int round = 1; round <= ROUNDS; round++) {
      asked.set(round);
      while (woken.get() < round) {
        waiter.poll();
      }
      // A token that is left in the pipe would end every sleep.
      waiter.poll();
      long start = System.nanoTime();
      waiter.await(TimeUnit.MILLISECONDS.toNanos(1));
      assertThat(System.nanoTime() - start).isGreaterThan(TimeUnit.MICROSECONDS.toNanos(500));
    }
    waker.join();
    waiter.wake();
    waiter.await(TimeUnit.MINUTES.toNanos(10));
  }

  @Test
  void shouldCloseTheSelectorIfThePipeCannotBeOpened() throws Exception {
    AbstractSelector selector = SelectorProvider.provider().openSelector();
    SelectorProvider provider = mock(SelectorProvider.class);
    when(provider.openSelector()).thenReturn(selector);
    when(provider.openPipe()).thenThrow(new IOException("Too many open files"));
    assertThrows(
        TransportFailure.class, () -> new NetWaiter(provider), "too many open files", "ulimit -n");
    assertThat(selector.isOpen()).isFalse();
  }

  private void wakeInEachRound() {
    for (int round = 1; round <= ROUNDS; round++) {
      while (asked.get() < round) {
        Thread.yield();
      }
      waiter.wake();
      woken.set(round);
    }
  }
}
