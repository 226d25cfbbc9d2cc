// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.channel;

import static io.fluxccl.testing.FailureAssertions.assertRefused;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
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
import io.fluxccl.communicator.Communicator;
import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.host.HostMemory;
import io.fluxccl.proxy.ChannelTrigger;
import io.fluxccl.proxy.DirectMemoryDevice;
import io.fluxccl.proxy.ProxyOptions;
import io.fluxccl.semaphore.Host2DeviceSemaphore;
import io.fluxccl.testing.AllocatedBytes;
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.testkit.LocalRanks;
import io.fluxccl.testkit.Ranks;
import io.fluxccl.testkit.TestConnection;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.ConnectionEnd;
import io.fluxccl.transport.RegisteredMemory;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.TransportFlags;
import java.nio.ByteOrder;
import java.time.Duration;
import org.agrona.concurrent.AgentInvoker;
import org.agrona.concurrent.UnsafeBuffer;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;
import org.mockito.AdditionalAnswers;

/** A service whose only rank has channels to itself. */
@Ranks(value = 1, leakCheck = false)
class ProxyServiceTest {
  /** Returns a mock that delegates to a connection unless the test stubs a method. */
  private static Connection behaving(ProxyEnd end) {
    return mock(Connection.class, AdditionalAnswers.delegatesTo(end.link.connection));
  }

  /** Returns a connection whose only flush is done once polled as often as there are zeros. */
  private static Connection flushing(ProxyEnd end, Long first, Object... next) {
    Connection slow = behaving(end);
    doReturn(1L).when(slow).beginFlush();
    doReturn(first, next).when(slow).flushedTicket();
    return slow;
  }

  /** Returns the word that kernels poll while they wait for a flush of the channel. */
  private static long flushWordOf(ProxyChannel channel) {
    UnsafeBuffer handle = new UnsafeBuffer(new byte[ProxyChannelDescriptor.LENGTH]);
    channel.writeHandle(handle, 0);
    return HostMemory.getLongAcquire(
        handle.getLong(ProxyChannelDescriptor.FLUSH_WORD_OFFSET, ByteOrder.LITTLE_ENDIAN));
  }

  @ParameterizedTest
  @ValueSource(booleans = {true, false})
  void shouldFailOnlyTheChannelIfItsWriteOrFlushThrows(boolean isWrite, LocalRank rank) {
    InternalError error = new InternalError("a page is gone");
    try (ProxyEnd end = ProxyEnd.ofOne(rank).steppedByHand()) {
      Connection faulty = flushing(end, 0L);
      if (isWrite) {
        doThrow(error).when(faulty).write(any(), anyLong(), any(), anyLong(), anyLong());
      } else {
        doReturn(0L).doThrow(error).when(faulty).flushedTicket();
      }
      ProxyChannelDeviceHandle bad = end.addChannel(faulty).deviceHandle();
      ProxyChannelDeviceHandle good = end.addChannel(flushing(end, 0L, 1L)).deviceHandle();
      long badFlush = bad.putWithSignalAndRequestFlush(0, 32, 8);
      long goodFlush = good.putWithSignalAndRequestFlush(0, 32, 8);
      // Two triggers and the completed flush.
      assertThat(end.step()).isEqualTo(3);
      assertThat(end.service.failure(1)).isInstanceOf(Aborted.class).hasCause(error);
      assertThat(bad.poll()).as("a signal after the write").isEqualTo(!isWrite);
      assertThat(bad.awaitFlush(badFlush)).isFalse();
      assertThat(end.service.failure(2)).isNull();
      assertThat(good.poll()).isTrue();
      assertThat(good.awaitFlush(goodFlush)).isTrue();
    }
  }

  @Test
  void shouldFailAnIdleChannelIfItsConnectionIsLost(LocalRank rank) {
    Connection closed = TestConnection.to(rank, 0, 1, Transport.SHM, 64).connection;
    try (ProxyEnd end = ProxyEnd.ofOne(rank).steppedByHand()) {
      end.service.addSemaphore(new Host2DeviceSemaphore(rank.communicator(), closed));
      rank.communicator().setup().join();
      closed.close();
      end.step();
      assertThat(end.reported).hasValue("nothing");
      ((ConnectionEnd) end.link.connection).fail("the cable is cut", null);
      end.step();
      assertThat(end.reported).hasValue("0 0 TRANSPORT_FAILURE");
      assertThat(end.service.failure(0)).hasMessageContaining("the cable is cut");
      assertThat(end.service.failure(1)).isNull();
    }
  }

  @Test
  void shouldCompleteAFlushInFlightWhenTheProxyStops(LocalRank rank) {
    try (ProxyEnd end = ProxyEnd.ofOne(rank).steppedByHand()) {
      ProxyChannel channel = end.addChannel(flushing(end, 0L, 0L, 0L, 0L, 1L));
      channel.deviceHandle().putWithSignalAndRequestFlush(0, 32, 8);
      assertThat(end.step()).isEqualTo(1);
      end.stopStepping();
      assertThat(flushWordOf(channel)).isEqualTo(1);
      assertThat(end.service.failure(1)).isNull();
    }
  }

  @Test
  void shouldFailTheChannelIfItsFlushIsPendingWhenTheProxyStops(LocalRank rank) {
    ProxyOptions soon = ProxyOptions.builder().stopTimeout(Duration.ofMillis(50)).build();
    try (ProxyEnd end = ProxyEnd.ofOne(rank, soon)) {
      Connection stuck = flushing(end, 0L);
      ProxyChannel channel = end.addChannel(stuck);
      end.start();
      channel.deviceHandle().putWithSignalAndRequestFlush(0, 32, 8);
      verify(stuck, timeout(60_000)).beginFlush();
      end.service.stopProxy();
      assertThat(flushWordOf(channel)).isNegative();
      assertThat(end.service.failure(1)).isInstanceOf(Timeout.class);
      assertThat(end.reported).hasValue("1 0 TIMEOUT");
    }
  }

  @Test
  void shouldHaveNoThreadUntilThereIsAChannel(LocalRank rank) {
    try (ProxyService service = new ProxyService(rank.communicator())) {
      service.startProxy();
      assertThat(service.proxy().isRunning()).isFalse();
      TestConnection link = TestConnection.to(rank, 0, 0, Transport.SHM, 64);
      service.buildAndAddSemaphore(rank.communicator(), link.connection);
      rank.communicator().setup().join();
      assertThat(service.proxy().isRunning()).isTrue();
    }
  }

  @Test
  void shouldFreeAllIfClosedAgainAfterAFailedClose(LocalRank rank) {
    DirectMemoryDevice device = new DirectMemoryDevice();
    TestConnection link = TestConnection.to(rank, 0, 0, Transport.SHM, 64);
    Host2DeviceSemaphore semaphore = new Host2DeviceSemaphore(rank.communicator(), link.connection);
    rank.communicator().setup().join();
    try (Communicator counted = Communicator.create(rank.bootstrap(), device)) {
      int before = device.openBuffers();
      ProxyService service = new ProxyService(counted);
      service.addSemaphore(semaphore);
      int open = device.openBuffers();
      assertThat(open).isGreaterThan(before);
      try (AgentInvoker proxy = new AgentInvoker(thrown -> {}, null, service.proxy())) {
        proxy.start();
        assertRefused(service::close, "stepped by hand");
        assertRefused(service::startProxy, "closed");
        assertThat(device.openBuffers()).isEqualTo(open);
        semaphore.signal();
      }
      service.close();
      service.close();
      assertThat(device.openBuffers()).isEqualTo(before);
      assertRefused(semaphore::signal, "is closed");
    }
  }

  @Test
  void shouldFreeTheRingWhenThereIsNoMemoryForTheFlushes(LocalRank rank) {
    DirectMemoryDevice memory = new DirectMemoryDevice();
    Device full = mock(Device.class, AdditionalAnswers.delegatesTo(memory));
    DeviceFailure failure = new DeviceFailure(2, "OUT_OF_MEMORY", "on purpose");
    doThrow(failure)
        .when(full)
        .allocatePinned(ChannelTrigger.MAX_IDS * ProxyChannelDescriptor.FLUSH_WORD_STRIDE);
    try (Communicator communicator = Communicator.create(rank.bootstrap(), full)) {
      int before = memory.openBuffers();
      assertThatThrownBy(() -> new ProxyService(communicator)).isSameAs(failure);
      assertThat(memory.openBuffers()).isEqualTo(before);
    }
  }

  @Test
  @Ranks(value = 2, leakCheck = false)
  void shouldCloseAddedSemaphoresAndBuildNoneAfterClose(LocalRanks ranks) {
    LocalRank rank = ranks.ranks().get(0);
    ProxyEnd end = ProxyEnd.ofOne(rank);
    Host2DeviceSemaphore late = end.newSemaphore();
    rank.communicator().setup().join();
    end.close();
    assertRefused(() -> end.service.addSemaphore(late), "proxy service");
    assertRefused(late::signal, "is closed");
    // Refused before it checks the connection, which belongs to another communicator.
    Communicator other = ranks.ranks().get(1).communicator();
    assertRefused(
        () -> end.service.buildAndAddSemaphore(other, end.link.connection), "proxy service");
  }

  @Test
  void shouldRefuseMoreMemoriesThanATriggerCanName(LocalRank rank) {
    TestConnection link = TestConnection.to(rank, 0, 0, Transport.SHM, 64);
    try (ProxyService service = new ProxyService(rank.communicator())) {
      for (int i = 0; i < 512; i++) {
        assertThat(service.addMemory(link.local)).isEqualTo(i);
      }
      assertRefused(() -> service.addMemory(link.local), "512");
    }
  }

  @Test
  void shouldAllocateNothingForPutSignalAndFlushOverSharedMemory(LocalRank rank) {
    try (ProxyEnd end = ProxyEnd.ofOne(rank).steppedByHand()) {
      long allocated =
          AllocatedBytes.least(
              1000,
              () -> {
                for (int i = 0; i < 20_000; i++) {
                  end.channel.putWithSignal(32, 0, 8);
                  end.step();
                  end.channel.poll();
                }
              });
      assertThat(allocated).as("bytes of 20000 rounds").isLessThan(1000);
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
      long size, long sourceOffset, long targetOffset, String text, LocalRank rank) {
    try (ProxyEnd end = ProxyEnd.ofOne(rank).steppedByHand()) {
      assertRefused(() -> end.channel.put(targetOffset, sourceOffset, size), text);
      end.step();
      assertThat(end.service.failure(0))
          .isInstanceOf(InvalidUsage.class)
          .hasMessageContaining(text);
      assertThat(end.channel.flush()).isFalse();
    }
  }

  @Test
  void shouldFailTheChannelIfATriggerHasType0(LocalRank rank) {
    try (ProxyEnd end = ProxyEnd.ofOne(rank).steppedByHand()) {
      end.service.proxy().fifo().deviceHandle(rank.communicator().abortFlag()).push(0, 0);
      end.step();
      assertThat(end.reported).hasValue("0 0 INVALID_USAGE");
      assertThat(end.service.failure(0)).hasMessageContaining("type 0");
    }
  }

  @ParameterizedTest
  @ValueSource(ints = {-1, 1, 1023, 1024})
  void shouldRefuseAnUnknownSemaphoreId(int id, LocalRank rank) {
    try (ProxyEnd end = ProxyEnd.ofOne(rank)) {
      assertRefused(() -> end.service.failure(id), "semaphore=" + id);
      assertRefused(() -> end.service.closeSemaphore(id));
    }
  }

  @Test
  void shouldReuseIdsOfClosedMemoriesOnceAllIdsWereUsed(LocalRank rank) {
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
  }

  @Test
  void shouldReuseIdsOfClosedSemaphoresWithoutTheirFailure(LocalRank rank) {
    try (ProxyEnd end = ProxyEnd.ofOne(rank).steppedByHand()) {
      for (int i = 1; i < ChannelTrigger.MAX_IDS; i++) {
        end.service.addSemaphore(end.newSemaphore());
      }
      rank.communicator().setup().join();
      end.channel.put(60, 0, 8);
      end.step();
      assertThat(end.channel.flush()).isFalse();
      assertThat(end.service.failure(0)).hasMessageContaining("64");
      assertThat(end.reported).hasValue("0 0 INVALID_USAGE");
      end.step();

      end.service.closeSemaphore(0);
      ProxyChannelDeviceHandle again = end.addChannel(end.link.connection).deviceHandle();
      assertThat(end.service.failure(0)).isNull();
      long flush = again.putWithSignalAndRequestFlush(0, 32, 8);
      end.step();
      assertThat(again.awaitFlush(flush)).isTrue();
      assertThat(again.poll()).isTrue();
      Host2DeviceSemaphore refused = end.newSemaphore();
      assertRefused(() -> end.service.addSemaphore(refused), "1024");
      assertThat(refused.isClosed()).isTrue();
      rank.communicator().setup().handle((done, failure) -> null).join();
    }
  }
}
