// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.channel;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.awaitility.Awaitility.await;
import static org.mockito.ArgumentMatchers.any;
import static org.mockito.ArgumentMatchers.anyLong;
import static org.mockito.Mockito.doReturn;
import static org.mockito.Mockito.doThrow;
import static org.mockito.Mockito.mock;
import static org.mockito.Mockito.timeout;
import static org.mockito.Mockito.verify;

import io.fluxccl.Aborted;
import io.fluxccl.DeviceFailure;
import io.fluxccl.InvalidUsage;
import io.fluxccl.Timeout;
import io.fluxccl.TransportFailure;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.host.HostKernel;
import io.fluxccl.device.host.HostMemory;
import io.fluxccl.proxy.ChannelTrigger;
import io.fluxccl.proxy.DirectMemoryDevice;
import io.fluxccl.proxy.ProxyOptions;
import io.fluxccl.semaphore.Host2DeviceSemaphore;
import io.fluxccl.testing.AllocatedBytes;
import io.fluxccl.testing.Rounds;
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.testkit.LocalRanks;
import io.fluxccl.testkit.TestConnection;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.ConnectionEnd;
import io.fluxccl.transport.RegisteredMemory;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.TransportFlags;
import java.nio.ByteOrder;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;
import org.agrona.concurrent.AgentInvoker;
import org.agrona.concurrent.UnsafeBuffer;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;
import org.mockito.AdditionalAnswers;

class ProxyChannelTest {
  private static final Duration LONG = Duration.ofSeconds(220);

  /** One rank's end: a service with one channel over the whole buffer. */
  private static final class End implements AutoCloseable {
    final TestConnection link;
    final ProxyService service;
    final ProxyChannelDeviceHandle channel;

    End(LocalRank rank, Transport transport, long bytes) {
      link = TestConnection.to(rank, 1 - rank.rank(), 0, transport, bytes);
      service = new ProxyService(rank.communicator());
      int semaphore = service.buildAndAddSemaphore(rank.communicator(), link.connection);
      rank.communicator().setup().join();
      int target = service.addMemory(link.remote);
      int source = service.addMemory(link.local);
      channel = service.proxyChannel(semaphore, target, source).deviceHandle();
    }

    End start() {
      service.startProxy();
      return this;
    }

    void run(HostKernel kernel, int threads) throws Exception {
      link.rank.stream()
          .launch(kernel, 1, threads, KernelArgs.NONE)
          .completion()
          .get(LONG.toSeconds(), TimeUnit.SECONDS);
    }

    @Override
    public void close() {
      service.close();
    }
  }

  @ParameterizedTest
  @CsvSource({
    "SHM,1",
    "SHM,1024",
    "SHM,1048576",
    "ETHERNET,1",
    "ETHERNET,1024",
    "ETHERNET,1048576"
  })
  void shouldPlayPingPong(Transport transport, int elements) {
    int rounds = elements > 100_000 ? Rounds.of(20, 100) : Rounds.of(200, 1000);
    try (LocalRanks ranks = LocalRanks.of(2)) {
      ranks.run(
          LONG,
          rank -> {
            try (End end = new End(rank, transport, elements * 4L).start()) {
              AtomicLong wrong = new AtomicLong();
              end.run(
                  HostKernel.of(
                      "ping-pong",
                      (thread, args) -> {
                        for (int round = 0; round < rounds; round++) {
                          if ((round & 1) == rank.rank()) {
                            for (int i = 0; i < elements; i++) {
                              end.link.putInt(i, i ^ round);
                            }
                            assertThat(end.channel.putWithSignalAndFlush(0, 0, elements * 4L))
                                .isTrue();
                          } else {
                            assertThat(end.channel.await()).isTrue();
                            for (int i = 0; i < elements; i++) {
                              wrong.addAndGet(end.link.getInt(i) == (i ^ round) ? 0 : 1);
                            }
                          }
                        }
                      }),
                  1);
              assertThat(wrong).hasValue(0);
              end.link.rank.awaitAll();
            }
          });
    }
  }

  @ParameterizedTest
  @EnumSource(names = {"SHM", "ETHERNET"})
  void shouldNeverShowASignalBeforeItsData(Transport transport) {
    int rounds = Rounds.of(300, 10_000);
    int words = 64;
    try (LocalRanks ranks = LocalRanks.of(2)) {
      ranks.run(
          LONG,
          rank -> {
            // First half: data that this rank sends; second half: data that it receives.
            try (End end = new End(rank, transport, words * 8L).start()) {
              AtomicInteger early = new AtomicInteger();
              end.run(
                  HostKernel.of(
                      "order",
                      (thread, args) -> {
                        for (int round = 1; round <= rounds; round++) {
                          for (int i = 0; i < words; i++) {
                            end.link.putInt(i, round);
                          }
                          assertThat(end.channel.put(words * 4L, 0, words * 4L)).isTrue();
                          assertThat(end.channel.signal()).isTrue();
                          assertThat(end.channel.await()).isTrue();
                          for (int i = 0; i < words; i++) {
                            if (end.link.getInt(words + i) != round) {
                              early.incrementAndGet();
                            }
                          }
                          // Both have read before either writes again.
                          assertThat(end.channel.signal()).isTrue();
                          assertThat(end.channel.await()).isTrue();
                          assertThat(end.channel.flush()).isTrue();
                        }
                      }),
                  1);
              assertThat(early).hasValue(0);
              end.link.rank.awaitAll();
            }
          });
    }
  }

  @ParameterizedTest
  @EnumSource(names = {"SHM", "ETHERNET"})
  void shouldLetFourThreadsFlushOneChannelAtOnce(Transport transport) {
    int threads = 4;
    int rounds = Rounds.of(150, 500);
    int bytes = 4096;
    try (LocalRanks ranks = LocalRanks.of(2)) {
      ranks.run(
          LONG,
          rank -> {
            try (End end = new End(rank, transport, 2L * threads * bytes).start()) {
              end.run(
                  HostKernel.of(
                      "flush",
                      (thread, args) -> {
                        long offset = (long) thread.threadIdx() * bytes;
                        for (int round = 1; round <= rounds; round++) {
                          HostMemory.fill(end.link.buffer.address() + offset, bytes, (byte) round);
                          assertThat(end.channel.put(threads * bytes + offset, offset, bytes))
                              .isTrue();
                          assertThat(end.channel.flush()).isTrue();
                        }
                      }),
                  threads);
              end.link.rank.awaitAll();
              int last = (rounds & 0xff) * 0x01010101;
              for (int i = 0; i < threads * bytes / 4; i++) {
                assertThat(end.link.getInt(threads * bytes / 4 + i)).isEqualTo(last);
              }
              end.link.rank.awaitAll();
            }
          });
    }
  }

  @Test
  void shouldWorkWhenSteppedByHand() {
    try (LocalRanks ranks = LocalRanks.of(2)) {
      ranks.run(
          rank -> {
            try (End end = new End(rank, Transport.SHM, 128);
                AgentInvoker proxy =
                    new AgentInvoker(
                        error -> {
                          throw new AssertionError(error);
                        },
                        null,
                        end.service.proxy())) {
              proxy.start();
              assertThat(proxy.invoke()).isZero();
              end.link.putInt(0, 11 + rank.rank());
              end.channel.putWithSignal(64, 0, 4);
              assertThat(proxy.invoke()).isEqualTo(1);
              assertThat(end.channel.await()).isTrue();
              assertThat(end.link.getInt(16)).isEqualTo(11 + end.link.peer);
              // Equal offsets at both ends.
              end.link.putInt(4 + rank.rank(), 21 + rank.rank());
              end.channel.putWithSignal(16 + 4L * rank.rank(), 4);
              assertThat(proxy.invoke()).isEqualTo(1);
              assertThat(end.channel.await()).isTrue();
              assertThat(end.link.getInt(4 + end.link.peer)).isEqualTo(21 + end.link.peer);
              end.link.rank.awaitAll();
            }
          });
    }
  }

  @Test
  void shouldFailOnlyTheChannelOfAnInvalidTrigger() {
    try (LocalRanks ranks = LocalRanks.of(2)) {
      ranks.run(
          rank -> {
            TestConnection link = TestConnection.to(rank, 1 - rank.rank(), 0, Transport.SHM, 64);
            AtomicReference<Object> told = new AtomicReference<>();
            try (ProxyService service =
                new ProxyService(
                    rank.communicator(),
                    64,
                    ProxyOptions.defaults(),
                    (id, peer, reason) -> told.set(id + " " + peer + " " + reason.code()))) {
              int bad = service.buildAndAddSemaphore(rank.communicator(), link.connection);
              int good = service.buildAndAddSemaphore(rank.communicator(), link.connection);
              rank.communicator().setup().join();
              int target = service.addMemory(link.remote);
              int source = service.addMemory(link.local);
              service.startProxy();
              ProxyChannelDeviceHandle badChannel =
                  service.proxyChannel(bad, target, source).deviceHandle();
              ProxyChannelDeviceHandle goodChannel =
                  service.proxyChannel(good, target, source).deviceHandle();
              badChannel.put(60, 0, 8);
              assertThat(badChannel.flush()).isFalse();
              assertThat(badChannel.putWithSignalAndFlush(0, 0, 8)).isFalse();
              assertThat(service.failure(bad))
                  .isInstanceOf(InvalidUsage.class)
                  .hasMessageContaining("64");
              // The channel releases its kernel before it calls the listener.
              await()
                  .atMost(LONG)
                  .untilAsserted(
                      () -> assertThat(told).hasValue(bad + " " + link.peer + " INVALID_USAGE"));
              assertThat(goodChannel.putWithSignalAndFlush(0, 32, 8)).isTrue();
              assertThat(goodChannel.await()).isTrue();
              assertThat(service.failure(good)).isNull();
              rank.awaitAll();
            }
          });
    }
  }

  @Test
  void shouldFailOnlyTheChannelIfItsWriteThrows() {
    try (LocalRanks ranks = LocalRanks.of(1)) {
      ranks.run(
          rank -> {
            TestConnection link = TestConnection.to(rank, 0, 0, Transport.SHM, 64);
            Connection faulty = behaving(link.connection);
            InternalError error = new InternalError("a page is gone");
            doThrow(error).when(faulty).write(any(), anyLong(), any(), anyLong(), anyLong());
            try (ProxyService service = new ProxyService(rank.communicator());
                AgentInvoker proxy = new AgentInvoker(thrown -> {}, null, service.proxy())) {
              int bad = service.addSemaphore(semaphoreOf(link), faulty);
              int good = service.addSemaphore(semaphoreOf(link));
              rank.communicator().setup().join();
              int target = service.addMemory(link.remote);
              int source = service.addMemory(link.local);
              ProxyChannelDeviceHandle badChannel =
                  service.proxyChannel(bad, target, source).deviceHandle();
              ProxyChannelDeviceHandle goodChannel =
                  service.proxyChannel(good, target, source).deviceHandle();
              proxy.start();
              badChannel.put(0, 32, 8);
              badChannel.signal();
              long badFlush = badChannel.putWithSignalAndRequestFlush(0, 32, 8);
              long goodFlush = goodChannel.putWithSignalAndRequestFlush(0, 32, 8);
              assertThat(proxy.invoke()).isEqualTo(4);
              assertThat(service.failure(bad)).isInstanceOf(Aborted.class).hasCause(error);
              assertThat(badChannel.poll()).isFalse();
              assertThat(badChannel.awaitFlush(badFlush)).isFalse();
              assertThat(service.failure(good)).isNull();
              assertThat(goodChannel.poll()).isTrue();
              assertThat(goodChannel.awaitFlush(goodFlush)).isTrue();
            }
          });
    }
  }

  @Test
  void shouldFailAnIdleChannelIfItsConnectionIsLost() {
    try (LocalRanks ranks = LocalRanks.of(1)) {
      ranks.run(
          rank -> {
            TestConnection lost = TestConnection.to(rank, 0, 0, Transport.SHM, 64);
            TestConnection closed = TestConnection.to(rank, 0, 1, Transport.SHM, 64);
            AtomicReference<Object> told = new AtomicReference<>("nothing");
            try (ProxyService service =
                    new ProxyService(
                        rank.communicator(),
                        64,
                        ProxyOptions.defaults(),
                        (id, peer, reason) -> told.set(id + " " + peer + " " + reason.code()));
                AgentInvoker proxy = new AgentInvoker(thrown -> {}, null, service.proxy())) {
              int bad = service.addSemaphore(semaphoreOf(lost));
              int good = service.addSemaphore(semaphoreOf(closed));
              rank.communicator().setup().join();
              proxy.start();
              closed.connection.close();
              proxy.invoke();
              assertThat(told).hasValue("nothing");
              ((ConnectionEnd) lost.connection).fail("the cable is cut", null);
              proxy.invoke();
              assertThat(told).hasValue(bad + " 0 TRANSPORT_FAILURE");
              assertThat(service.failure(bad)).hasMessageContaining("the cable is cut");
              assertThat(service.failure(good)).isNull();
            }
          });
    }
  }

  @Test
  void shouldCompleteFlushesOfOtherChannelsIfOneThrowsAnError() {
    try (LocalRanks ranks = LocalRanks.of(1)) {
      ranks.run(
          rank -> {
            TestConnection link = TestConnection.to(rank, 0, 0, Transport.SHM, 64);
            Connection faulty = behaving(link.connection);
            InternalError error = new InternalError("on purpose");
            doReturn(1L).when(faulty).beginFlush();
            doReturn(0L).doThrow(error).when(faulty).flushedTicket();
            Connection slow = behaving(link.connection);
            doReturn(1L).when(slow).beginFlush();
            doReturn(0L, 1L).when(slow).flushedTicket();
            try (ProxyService service = new ProxyService(rank.communicator());
                AgentInvoker proxy = new AgentInvoker(thrown -> {}, null, service.proxy())) {
              int bad = service.addSemaphore(semaphoreOf(link), faulty);
              int good = service.addSemaphore(semaphoreOf(link), slow);
              rank.communicator().setup().join();
              int target = service.addMemory(link.remote);
              int source = service.addMemory(link.local);
              ProxyChannelDeviceHandle badChannel =
                  service.proxyChannel(bad, target, source).deviceHandle();
              ProxyChannelDeviceHandle goodChannel =
                  service.proxyChannel(good, target, source).deviceHandle();
              proxy.start();
              long badFlush = badChannel.putWithSignalAndRequestFlush(0, 32, 8);
              long goodFlush = goodChannel.putWithSignalAndRequestFlush(0, 32, 8);
              // Two triggers and the completed flush.
              assertThat(proxy.invoke()).isEqualTo(3);
              assertThat(service.failure(bad)).isInstanceOf(Aborted.class).hasCause(error);
              assertThat(badChannel.awaitFlush(badFlush)).isFalse();
              assertThat(service.failure(good)).isNull();
              assertThat(goodChannel.awaitFlush(goodFlush)).isTrue();
            }
          });
    }
  }

  @Test
  void shouldCompleteAFlushInFlightWhenTheProxyStops() {
    try (LocalRanks ranks = LocalRanks.of(1)) {
      ranks.run(
          rank -> {
            TestConnection link = TestConnection.to(rank, 0, 0, Transport.SHM, 64);
            Connection slow = behaving(link.connection);
            doReturn(1L).when(slow).beginFlush();
            doReturn(0L, 0L, 0L, 0L, 1L).when(slow).flushedTicket();
            try (ProxyService service = new ProxyService(rank.communicator())) {
              ProxyChannel channel = channelOver(link, slow, service);
              try (AgentInvoker proxy = new AgentInvoker(thrown -> {}, null, service.proxy())) {
                proxy.start();
                channel.deviceHandle().putWithSignalAndRequestFlush(0, 32, 8);
                assertThat(proxy.invoke()).isEqualTo(1);
              }
              assertThat(flushWordOf(channel)).isEqualTo(1);
              assertThat(service.failure(0)).isNull();
            }
          });
    }
  }

  @Test
  void shouldFailTheChannelIfItsFlushIsPendingWhenTheProxyStops() {
    ProxyOptions hasty = ProxyOptions.builder().stopTimeout(Duration.ofMillis(50)).build();
    AtomicReference<Object> told = new AtomicReference<>();
    ChannelFailureListener listener = (id, peer, reason) -> told.set(id + " " + reason.code());
    try (LocalRanks ranks = LocalRanks.of(1)) {
      ranks.run(
          rank -> {
            TestConnection link = TestConnection.to(rank, 0, 0, Transport.SHM, 64);
            Connection stuck = behaving(link.connection);
            doReturn(1L).when(stuck).beginFlush();
            doReturn(0L).when(stuck).flushedTicket();
            try (ProxyService service =
                new ProxyService(rank.communicator(), 64, hasty, listener)) {
              ProxyChannel channel = channelOver(link, stuck, service);
              service.startProxy();
              channel.deviceHandle().putWithSignalAndRequestFlush(0, 32, 8);
              verify(stuck, timeout(60_000)).beginFlush();
              service.stopProxy();
              assertThat(flushWordOf(channel)).isNegative();
              assertThat(service.failure(0)).isInstanceOf(Timeout.class);
              assertThat(told).hasValue("0 TIMEOUT");
            }
          });
    }
  }

  private static ProxyChannel channelOver(
      TestConnection link, Connection connection, ProxyService service) {
    int semaphore = service.addSemaphore(semaphoreOf(link), connection);
    link.rank.communicator().setup().join();
    int target = service.addMemory(link.remote);
    int source = service.addMemory(link.local);
    return service.proxyChannel(semaphore, target, source);
  }

  /** Returns the word that kernels poll while they wait for a flush of the channel. */
  private static long flushWordOf(ProxyChannel channel) {
    UnsafeBuffer handle = new UnsafeBuffer(new byte[ProxyChannelDescriptor.LENGTH]);
    channel.writeHandle(handle, 0);
    return HostMemory.getLongAcquire(
        handle.getLong(ProxyChannelDescriptor.FLUSH_WORD_OFFSET, ByteOrder.LITTLE_ENDIAN));
  }

  private static Host2DeviceSemaphore semaphoreOf(TestConnection link) {
    return new Host2DeviceSemaphore(link.rank.communicator(), link.connection);
  }

  /** Returns a mock that delegates to a connection unless the test stubs a method. */
  private static Connection behaving(Connection connection) {
    return mock(Connection.class, AdditionalAnswers.delegatesTo(connection));
  }

  @Test
  void shouldEndAFlushWhenTheConnectionFails() {
    try (LocalRanks ranks = LocalRanks.of(2)) {
      ranks.run(
          rank -> {
            try (End end = new End(rank, Transport.ETHERNET, 64).start()) {
              assertThat(end.channel.putWithSignalAndFlush(0, 32, 8)).isTrue();
              assertThat(end.channel.await()).isTrue();
              rank.awaitAll();
              if (rank.rank() == 1) {
                end.link.connection.close();
              } else {
                Awaitility.await().until(() -> !end.channel.putWithSignalAndFlush(0, 32, 8));
                assertThat(end.service.failure(0)).isInstanceOf(TransportFailure.class);
                assertThat(end.service.failure(0).rank()).isEqualTo(1);
              }
              rank.awaitAll();
            }
          });
    }
  }

  @Test
  void shouldEndAFlushWithoutAProxyIfTheJobIsAborted() {
    try (LocalRanks ranks = LocalRanks.of(2)) {
      ranks.run(
          rank -> {
            try (End end = new End(rank, Transport.SHM, 64)) {
              CompletableFuture<Boolean> flushed =
                  CompletableFuture.supplyAsync(() -> end.channel.flush());
              rank.awaitAll();
              rank.communicator().abort(new Aborted(rank.rank(), "test"));
              assertThat(flushed.get(60, TimeUnit.SECONDS)).isFalse();
            }
          });
    }
  }

  @Test
  void shouldStopAndStartAgain() {
    try (LocalRanks ranks = LocalRanks.of(2)) {
      ranks.run(
          rank -> {
            try (End end = new End(rank, Transport.SHM, 64)) {
              for (int i = 0; i < 20; i++) {
                end.service.startProxy();
                assertThat(end.channel.putWithSignalAndFlush(0, 32, 8)).isTrue();
                assertThat(end.channel.await()).isTrue();
                end.service.stopProxy();
              }
              rank.awaitAll();
            }
          });
    }
  }

  @Test
  void shouldHaveNoThreadUntilThereIsAChannel() {
    try (LocalRanks ranks = LocalRanks.of(1)) {
      ranks.run(
          rank -> {
            try (ProxyService service = new ProxyService(rank.communicator())) {
              service.startProxy();
              assertThat(service.proxy().isRunning()).isFalse();
              TestConnection link = TestConnection.to(rank, 0, 0, Transport.SHM, 64);
              service.buildAndAddSemaphore(rank.communicator(), link.connection);
              rank.communicator().setup().join();
              assertThat(service.proxy().isRunning()).isTrue();
            }
          });
    }
  }

  @Test
  void shouldFreeAllIfClosedAgainAfterAFailedClose() {
    DirectMemoryDevice device = new DirectMemoryDevice();
    try (LocalRanks ranks = LocalRanks.of(1)) {
      ranks.run(
          rank -> {
            TestConnection link = TestConnection.to(rank, 0, 0, Transport.SHM, 64);
            Host2DeviceSemaphore semaphore = semaphoreOf(link);
            rank.communicator().setup().join();
            try (Communicator counted = Communicator.create(rank.bootstrap(), device)) {
              int before = device.openBuffers();
              ProxyService service = new ProxyService(counted);
              service.addSemaphore(semaphore);
              int open = device.openBuffers();
              assertThat(open).isGreaterThan(before);
              try (AgentInvoker proxy = new AgentInvoker(thrown -> {}, null, service.proxy())) {
                proxy.start();
                assertThatThrownBy(service::close)
                    .isInstanceOf(InvalidUsage.class)
                    .hasMessageContaining("stepped by hand");
                assertThatThrownBy(service::startProxy)
                    .isInstanceOf(InvalidUsage.class)
                    .hasMessageContaining("closed");
                assertThat(device.openBuffers()).isEqualTo(open);
                semaphore.signal();
              }
              service.close();
              service.close();
              assertThat(device.openBuffers()).isEqualTo(before);
              assertClosed(semaphore);
            }
          });
    }
  }

  @Test
  void shouldNotReportTheProxyStoppedWhileItHandlesATrigger() {
    CountDownLatch reported = new CountDownLatch(1);
    CountDownLatch goOn = new CountDownLatch(1);
    ChannelFailureListener slow =
        (semaphore, peer, reason) -> {
          reported.countDown();
          while (goOn.getCount() > 0) {
            Thread.interrupted(); // ignores interrupts
            LockSupport.parkNanos(1_000_000);
          }
        };
    ProxyOptions hasty = ProxyOptions.builder().stopTimeout(Duration.ZERO).build();
    try (LocalRanks ranks = LocalRanks.of(1)) {
      ranks.run(
          rank -> {
            TestConnection link = TestConnection.to(rank, 0, 0, Transport.SHM, 64);
            try (ProxyService service = new ProxyService(rank.communicator(), 64, hasty, slow)) {
              service.buildAndAddSemaphore(rank.communicator(), link.connection);
              rank.communicator().setup().join();
              int target = service.addMemory(link.remote);
              int source = service.addMemory(link.local);
              service.startProxy();
              link.local.close();
              service.proxyChannel(0, target, source).deviceHandle().put(0, 32, 8);
              reported.await();
              for (int i = 0; i < Rounds.of(1, 2); i++) {
                assertThatThrownBy(service::stopProxy)
                    .isInstanceOf(Timeout.class)
                    .hasMessageContaining("handler has not returned");
              }
              goOn.countDown();
              service.stopProxy();
            }
          });
    }
  }

  @Test
  void shouldFreeTheRingWhenThereIsNoMemoryForTheFlushes() {
    DirectMemoryDevice memory = new DirectMemoryDevice();
    Device full = mock(Device.class, AdditionalAnswers.delegatesTo(memory));
    DeviceFailure failure = new DeviceFailure(2, "OUT_OF_MEMORY", "on purpose");
    doThrow(failure)
        .when(full)
        .allocatePinned(ChannelTrigger.MAX_IDS * ProxyChannelDescriptor.FLUSH_WORD_STRIDE);
    try (LocalRanks ranks = LocalRanks.of(1)) {
      ranks.run(
          rank -> {
            try (Communicator communicator = Communicator.create(rank.bootstrap(), full)) {
              int before = memory.openBuffers();
              assertThatThrownBy(() -> new ProxyService(communicator)).isSameAs(failure);
              assertThat(memory.openBuffers()).isEqualTo(before);
            }
          });
    }
  }

  @Test
  void shouldCloseAddedSemaphoresAndBuildNoneAfterClose() {
    try (LocalRanks ranks = LocalRanks.of(2)) {
      LocalRank rank = ranks.ranks().get(0);
      TestConnection link = TestConnection.to(rank, 0, 0, Transport.SHM, 64);
      Host2DeviceSemaphore late = semaphoreOf(link);
      rank.communicator().setup().join();
      ProxyService service = new ProxyService(rank.communicator());
      service.close();
      assertThatThrownBy(() -> service.addSemaphore(late))
          .isInstanceOf(InvalidUsage.class)
          .hasMessageContaining("proxy service");
      assertClosed(late);
      // Refused before it checks the connection, which belongs to another communicator.
      Communicator other = ranks.ranks().get(1).communicator();
      assertThatThrownBy(() -> service.buildAndAddSemaphore(other, link.connection))
          .isInstanceOf(InvalidUsage.class)
          .hasMessageContaining("proxy service");
    }
  }

  private static void assertClosed(Host2DeviceSemaphore semaphore) {
    assertThatThrownBy(semaphore::signal)
        .isInstanceOf(InvalidUsage.class)
        .hasMessageContaining("is closed");
  }

  @Test
  void shouldRefuseMoreIdsThanATriggerCanName() {
    try (LocalRanks ranks = LocalRanks.of(1)) {
      ranks.run(
          rank -> {
            TestConnection link = TestConnection.to(rank, 0, 0, Transport.SHM, 64);
            try (ProxyService service = new ProxyService(rank.communicator())) {
              for (int i = 0; i < 512; i++) {
                assertThat(service.addMemory(link.local)).isEqualTo(i);
              }
              assertThatThrownBy(() -> service.addMemory(link.local))
                  .isInstanceOf(InvalidUsage.class)
                  .hasMessageContaining("512");
              for (int i = 0; i < 1024; i++) {
                assertThat(service.buildAndAddSemaphore(rank.communicator(), link.connection))
                    .isEqualTo(i);
              }
              assertThatThrownBy(
                      () -> service.buildAndAddSemaphore(rank.communicator(), link.connection))
                  .isInstanceOf(InvalidUsage.class)
                  .hasMessageContaining("1024");
              rank.communicator().setup().handle((done, failure) -> null).join();
            }
          });
    }
  }

  @Test
  void shouldRefuseChannelsWithUnknownIdsOrMemoriesOnTheWrongSides() {
    try (LocalRanks ranks = LocalRanks.of(2)) {
      ranks.run(
          rank -> {
            try (End end = new End(rank, Transport.SHM, 64)) {
              assertThatThrownBy(() -> end.service.proxyChannel(1, 0, 1))
                  .isInstanceOf(InvalidUsage.class);
              assertThatThrownBy(() -> end.service.proxyChannel(0, 2, 1))
                  .isInstanceOf(InvalidUsage.class);
              assertThatThrownBy(() -> end.service.proxyChannel(0, 1, 0))
                  .isInstanceOf(InvalidUsage.class)
                  .hasMessageContaining("rank " + end.link.peer);
            }
          });
    }
  }

  @Test
  void shouldAllocateNothingForPutSignalAndFlushOverSharedMemory() {
    try (LocalRanks ranks = LocalRanks.of(1)) {
      ranks.run(
          rank -> {
            TestConnection link = TestConnection.to(rank, 0, 0, Transport.SHM, 128);
            try (ProxyService service = new ProxyService(rank.communicator());
                AgentInvoker proxy = new AgentInvoker(error -> {}, null, service.proxy())) {
              int semaphore = service.buildAndAddSemaphore(rank.communicator(), link.connection);
              rank.communicator().setup().join();
              proxy.start();
              ProxyChannelDeviceHandle channel =
                  service
                      .proxyChannel(
                          semaphore, service.addMemory(link.remote), service.addMemory(link.local))
                      .deviceHandle();
              long allocated =
                  AllocatedBytes.least(
                      10,
                      () -> {
                        for (int i = 0; i < 20_000; i++) {
                          channel.putWithSignal(64, 0, 8);
                          proxy.invoke();
                          channel.poll();
                        }
                      });
              assertThat(allocated).as("bytes of 20000 rounds").isLessThan(1000);
            }
          });
    }
  }

  @ParameterizedTest
  @CsvSource({
    "4294967296, 0, 0, size=4294967296",
    "-8, 0, 0, size=18446744073709551608",
    "8, 4294967296, 0, source offset=4294967296",
    "8, 0, 4294967312, destination offset=4294967312"
  })
  void shouldFailTheChannelIfAPutDoesNotFitIntoATrigger(
      long size, long sourceOffset, long targetOffset, String text) {
    try (LocalRanks ranks = LocalRanks.of(1)) {
      ranks.run(
          rank -> {
            TestConnection link = TestConnection.to(rank, 0, 0, Transport.SHM, 64);
            try (ProxyService service = new ProxyService(rank.communicator());
                AgentInvoker proxy = new AgentInvoker(thrown -> {}, null, service.proxy())) {
              ProxyChannelDeviceHandle channel =
                  channelOver(link, link.connection, service).deviceHandle();
              proxy.start();
              assertThatThrownBy(() -> channel.put(targetOffset, sourceOffset, size))
                  .isInstanceOf(InvalidUsage.class)
                  .hasMessageContaining(text);
              proxy.invoke();
              assertThat(service.failure(0))
                  .isInstanceOf(InvalidUsage.class)
                  .hasMessageContaining(text);
              assertThat(channel.flush()).isFalse();
            }
          });
    }
  }

  @Test
  void shouldFailTheChannelIfATriggerHasType0() {
    try (LocalRanks ranks = LocalRanks.of(1)) {
      ranks.run(
          rank -> {
            TestConnection link = TestConnection.to(rank, 0, 0, Transport.SHM, 64);
            AtomicReference<Object> told = new AtomicReference<>();
            ChannelFailureListener listener = (id, peer, why) -> told.set(id + " " + why.code());
            try (ProxyService service =
                    new ProxyService(rank.communicator(), 64, ProxyOptions.defaults(), listener);
                AgentInvoker proxy = new AgentInvoker(thrown -> {}, null, service.proxy())) {
              channelOver(link, link.connection, service);
              proxy.start();
              service.proxy().fifo().deviceHandle(rank.communicator().abortFlag()).push(0, 0);
              proxy.invoke();
              assertThat(told).hasValue("0 INVALID_USAGE");
              assertThat(service.failure(0)).hasMessageContaining("type 0");
            }
          });
    }
  }

  @ParameterizedTest
  @CsvSource({"-1", "1", "1023", "1024"})
  void shouldRefuseAnUnknownSemaphoreId(int id) {
    try (LocalRanks ranks = LocalRanks.of(1)) {
      ranks.run(
          rank -> {
            TestConnection link = TestConnection.to(rank, 0, 0, Transport.SHM, 64);
            try (ProxyService service = new ProxyService(rank.communicator())) {
              channelOver(link, link.connection, service);
              assertThatThrownBy(() -> service.failure(id))
                  .isInstanceOf(InvalidUsage.class)
                  .hasMessageContaining("semaphore=" + id);
              assertThatThrownBy(() -> service.closeSemaphore(id)).isInstanceOf(InvalidUsage.class);
            }
          });
    }
  }

  @Test
  void shouldReuseIdsOfClosedMemoriesOnceAllIdsWereUsed() {
    try (LocalRanks ranks = LocalRanks.of(1)) {
      ranks.run(
          rank -> {
            TestConnection link = TestConnection.to(rank, 0, 0, Transport.SHM, 64);
            DeviceBuffer buffer = rank.device().allocate(64);
            try (ProxyService service = new ProxyService(rank.communicator())) {
              service.addMemory(link.local);
              for (int i = 1; i < 2 * ChannelTrigger.MAX_MEMORIES; i++) {
                RegisteredMemory memory =
                    rank.communicator().registerMemory(buffer, TransportFlags.of(Transport.SHM));
                // Unused ids first, then the only id whose memory is closed.
                int id = i < ChannelTrigger.MAX_MEMORIES ? i : 1;
                assertThat(service.addMemory(memory)).isEqualTo(id);
                memory.close();
              }
            }
          });
    }
  }

  @Test
  void shouldReuseIdsOfClosedSemaphoresWithoutTheirFailure() {
    try (LocalRanks ranks = LocalRanks.of(1)) {
      ranks.run(
          rank -> {
            TestConnection link = TestConnection.to(rank, 0, 0, Transport.SHM, 64);
            try (ProxyService service = new ProxyService(rank.communicator());
                AgentInvoker proxy = new AgentInvoker(thrown -> {}, null, service.proxy())) {
              for (int i = 0; i < ChannelTrigger.MAX_IDS; i++) {
                service.addSemaphore(semaphoreOf(link));
              }
              rank.communicator().setup().join();
              int target = service.addMemory(link.remote);
              int source = service.addMemory(link.local);
              proxy.start();
              ProxyChannelDeviceHandle failed =
                  service.proxyChannel(5, target, source).deviceHandle();
              failed.put(60, 0, 8);
              proxy.invoke();
              assertThat(failed.flush()).isFalse();
              proxy.invoke();

              service.closeSemaphore(5);
              assertThat(service.addSemaphore(semaphoreOf(link))).isEqualTo(5);
              rank.communicator().setup().join();
              assertThat(service.failure(5)).isNull();
              ProxyChannelDeviceHandle again =
                  service.proxyChannel(5, target, source).deviceHandle();
              long flush = again.putWithSignalAndRequestFlush(0, 32, 8);
              proxy.invoke();
              assertThat(again.awaitFlush(flush)).isTrue();
              assertThat(again.poll()).isTrue();
              Host2DeviceSemaphore refused = semaphoreOf(link);
              assertThatThrownBy(() -> service.addSemaphore(refused))
                  .isInstanceOf(InvalidUsage.class)
                  .hasMessageContaining("1024");
              assertThat(refused.isClosed()).isTrue();
              rank.communicator().setup().handle((done, failure) -> null).join();
            }
          });
    }
  }
}
