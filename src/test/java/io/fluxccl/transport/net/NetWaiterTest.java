// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import static io.fluxccl.testing.FailureAssertions.assertThrows;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.InstanceOfAssertFactories.STRING;
import static org.mockito.ArgumentMatchers.anyLong;
import static org.mockito.Mockito.mock;
import static org.mockito.Mockito.timeout;
import static org.mockito.Mockito.verify;
import static org.mockito.Mockito.when;

import ch.qos.logback.classic.Logger;
import ch.qos.logback.classic.spi.ILoggingEvent;
import ch.qos.logback.core.read.ListAppender;
import io.fluxccl.Deadline;
import io.fluxccl.TransportFailure;
import io.fluxccl.device.Device;
import java.io.IOException;
import java.nio.channels.spi.AbstractSelector;
import java.nio.channels.spi.SelectorProvider;
import java.time.Duration;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.AutoClose;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.slf4j.LoggerFactory;

@Timeout(120)
class NetWaiterTest {
  private static final int ROUNDS = 300;

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

  @Test
  void shouldLogOnceThatTheSelectorFailsIfNoConnectionCanReportIt() throws Exception {
    Logger logger = (Logger) LoggerFactory.getLogger(NetAgent.class);
    ListAppender<ILoggingEvent> lines = new ListAppender<>();
    lines.start();
    logger.addAppender(lines);
    LinkNetwork network = mock(LinkNetwork.class);
    NetAgent agent = new NetAgent("agent", mock(Device.class), network);
    try {
      agent.waiter().close();
      agent.start();
      verify(network, timeout(60_000).atLeast(ROUNDS / 20)).tend(anyLong()); // one in a cycle
    } finally {
      agent.end(() -> logger.detachAppender(lines));
    }
    assertThat(agent.awaitEnd(Deadline.after(Duration.ofMinutes(1)))).isTrue();
    assertThat(lines.list)
        .extracting(ILoggingEvent::getFormattedMessage)
        .singleElement(STRING)
        .contains("agent: its sockets can't be polled", "ClosedSelectorException");
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
