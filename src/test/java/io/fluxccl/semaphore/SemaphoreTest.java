// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.semaphore;

import static io.fluxccl.testing.FailureAssertions.assertRefused;
import static io.fluxccl.testing.FailureAssertions.assertThrows;
import static io.fluxccl.testing.FinalMocks.mockFinal;
import static org.assertj.core.api.Assertions.assertThat;
import static org.mockito.Mockito.mock;
import static org.mockito.Mockito.when;

import io.fluxccl.Aborted;
import io.fluxccl.InvalidUsage;
import io.fluxccl.Timeout;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.device.Device;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.host.HostKernel;
import io.fluxccl.testing.Bytes;
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.testkit.Ranks;
import io.fluxccl.testkit.TestConnection;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.Transport;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import org.agrona.MutableDirectBuffer;
import org.agrona.concurrent.UnsafeBuffer;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import reactor.test.StepVerifier;

@Tag("jdk")
@Ranks(value = 2, leakCheck = false)
class SemaphoreTest {
  private static final Duration TIMEOUT = Duration.ofSeconds(60);

  /** The limit of a wait that fails. */
  private static final Duration SOON = Duration.ofMillis(100);

  private static final int ROUNDS = 20;

  private static TestConnection linkOf(LocalRank rank, Transport transport) {
    return TestConnection.to(rank, 1 - rank.rank(), 0, transport, 8000);
  }

  private static Host2HostSemaphore hostSemaphore(LocalRank rank, TestConnection link) {
    Host2HostSemaphore semaphore = new Host2HostSemaphore(rank.communicator(), link.connection);
    rank.communicator().setup().join();
    return semaphore;
  }

  private static SemaphoreDeviceHandle kernelSemaphore(LocalRank rank) {
    SmDevice2DeviceSemaphore semaphore =
        new SmDevice2DeviceSemaphore(rank.communicator(), linkOf(rank, Transport.SHM).connection);
    rank.communicator().setup().join();
    return handleOf(semaphore::writeHandle);
  }

  /** Writes to the peer and checks what it wrote, several times. */
  static void exchange(LocalRank rank, TestConnection link, Runnable signal, Runnable await) {
    int half = (int) link.buffer.size() / 2;
    for (int round = 0; round < ROUNDS; round++) {
      link.buffer.upload(0, Bytes.random(ROUNDS * rank.rank() + round, half));
      link.connection.write(link.remote, half, link.local, 0, half);
      signal.run();
      await.run();
      assertThat(Bytes.of(link.buffer, half, half))
          .isEqualTo(Bytes.random(ROUNDS * link.peer + round, half));
      // The peer must have read before the next round overwrites.
      signal.run();
      await.run();
    }
  }

  @ParameterizedTest
  @EnumSource(names = {"SHM", "ETHERNET"})
  void shouldOrderWritesWithHostSemaphoresForManyRounds(Transport transport, LocalRank rank) {
    TestConnection link = linkOf(rank, transport);
    try (Host2HostSemaphore semaphore = hostSemaphore(rank, link)) {
      exchange(rank, link, semaphore::signal, () -> semaphore.await(TIMEOUT));
    }
  }

  @ParameterizedTest
  @EnumSource(names = {"SHM", "ETHERNET"})
  void shouldOrderWritesWithDeviceSemaphoresForManyRounds(Transport transport, LocalRank rank) {
    TestConnection link = linkOf(rank, transport);
    try (Host2DeviceSemaphore semaphore =
        new Host2DeviceSemaphore(rank.communicator(), link.connection)) {
      rank.communicator().setup().join();
      SemaphoreDeviceHandle handle = handleOf(semaphore::writeHandle);
      HostKernel kernel =
          HostKernel.of("wait", (thread, args) -> assertThat(handle.await()).isTrue());
      exchange(rank, link, semaphore::signal, () -> launch(rank, kernel).join());
    }
  }

  @Test
  void shouldSignalFromKernelToKernel(LocalRank rank) {
    SemaphoreDeviceHandle handle = kernelSemaphore(rank);
    HostKernel pingPong =
        HostKernel.of(
            "ping-pong",
            (thread, args) -> {
              for (int i = 0; i < 10_000; i++) {
                if (rank.rank() == 0) {
                  handle.signal();
                  assertThat(handle.await()).isTrue();
                } else {
                  assertThat(handle.await()).isTrue();
                  handle.relaxedSignal();
                }
              }
              assertThat(handle.poll()).isFalse();
            });
    launch(rank, pingPong).join();
  }

  @Test
  void shouldRefuseKernelSignalsOverATransportThatDoesNotMap(LocalRank rank) {
    TestConnection link = linkOf(rank, Transport.ETHERNET);
    assertRefused(
        () -> new SmDevice2DeviceSemaphore(rank.communicator(), link.connection),
        "Host2DeviceSemaphore");
  }

  @Test
  void shouldNameThePeerIfItsSignalDoesNotArrive(LocalRank rank) {
    TestConnection link = linkOf(rank, Transport.SHM);
    Host2HostSemaphore semaphore = hostSemaphore(rank, link);
    Timeout late = assertThrows(Timeout.class, () -> semaphore.await(SOON), "rank " + link.peer);
    assertThat(late.rank()).isEqualTo(link.peer);
    StepVerifier.create(semaphore.arrival(SOON)).expectError(Timeout.class).verify(TIMEOUT);
  }

  @Test
  void shouldArriveWithoutBlockingAThread(LocalRank rank) {
    Host2HostSemaphore semaphore = hostSemaphore(rank, linkOf(rank, Transport.SHM));
    StepVerifier.create(semaphore.arrival(TIMEOUT))
        .then(semaphore::signal)
        .expectComplete()
        .verify(TIMEOUT);
  }

  @Test
  void shouldEndAKernelsWaitWhenTheCommunicatorIsAborted(LocalRank rank) throws Exception {
    SemaphoreDeviceHandle handle = kernelSemaphore(rank);
    rank.awaitAll();
    AtomicBoolean arrived = new AtomicBoolean(true);
    CompletableFuture<Void> waiting = new CompletableFuture<>();
    HostKernel kernel =
        HostKernel.of(
            "wait",
            (thread, args) -> {
              waiting.complete(null);
              arrived.set(handle.await());
            });
    CompletableFuture<Void> done = launch(rank, kernel);
    waiting.get(60, TimeUnit.SECONDS);
    rank.communicator().abort(new Aborted(rank.rank(), "test"));
    done.join();
    assertThat(arrived).isFalse();
  }

  private interface HandleWriter {
    void write(MutableDirectBuffer target, int offset);
  }

  private static SemaphoreDeviceHandle handleOf(HandleWriter writer) {
    UnsafeBuffer bytes =
        new UnsafeBuffer(ByteBuffer.allocateDirect(SemaphoreDescriptor.HANDLE_LENGTH));
    writer.write(bytes, 0);
    return new SemaphoreDeviceHandle().wrap(bytes.addressOffset());
  }

  private static CompletableFuture<Void> launch(LocalRank rank, HostKernel kernel) {
    return rank.stream().launch(kernel, 1, 1, KernelArgs.NONE).completion();
  }

  @Test
  @Ranks(value = 1, leakCheck = false)
  void shouldRefuseUseOfAClosedSemaphore(LocalRank rank) {
    Host2HostSemaphore semaphore =
        hostSemaphore(rank, TestConnection.to(rank, 0, 0, Transport.SHM, 64));
    StepVerifier.create(semaphore.arrival(TIMEOUT))
        .then(semaphore::close)
        .expectError(InvalidUsage.class)
        .verify(TIMEOUT);
    semaphore.close();
    assertRefused(semaphore::poll);
    assertRefused(() -> semaphore.await(TIMEOUT));
    assertRefused(semaphore::signal);
  }

  @Test
  void shouldRefuseHostSemaphoresOverRdmaIfTheGpuDoesNotOrderRemoteWrites() {
    Connection connection = mock(Connection.class);
    when(connection.transport()).thenReturn(Transport.IB0);
    Device gpu = mock(Device.class);
    when(gpu.ordersRemoteWrites()).thenReturn(false);
    Communicator communicator = mockFinal(Communicator.class);
    when(communicator.device()).thenReturn(gpu);
    assertRefused(
        () -> new Host2HostSemaphore(communicator, connection),
        "does not order writes of RDMA devices");
  }
}
