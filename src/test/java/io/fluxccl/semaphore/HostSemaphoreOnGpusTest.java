// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.semaphore;

import static io.fluxccl.testing.FailureAssertions.assertRefused;

import io.fluxccl.Deadline;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.testing.EmulatedGpus;
import io.fluxccl.testing.RequiresGpus;
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.testkit.Ranks;
import io.fluxccl.testkit.TestConnection;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.TransportFlags;
import java.time.Duration;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Hosts that signal each other in a job whose ranks are on GPUs. */
@RequiresGpus
@EmulatedGpus
@Timeout(120)
@Ranks(value = 2, onGpus = true, leakCheck = false)
class HostSemaphoreOnGpusTest {
  private static final Duration TIMEOUT = Duration.ofSeconds(60);
  private static final int SIZE = 300_000;

  @ParameterizedTest
  @CsvSource({"ETHERNET, false", "NET, false", "SHM, true", "ETHERNET, true", "NET, true"})
  void shouldSignalAfterWrites(Transport transport, boolean toHostMemory, LocalRank rank) {
    exchange(rank, transport, toHostMemory);
  }

  /** Writes to the peer, signals, and reads what the peer wrote, several times. */
  static void exchange(LocalRank rank, Transport transport, boolean toHostMemory) {
    Communicator communicator = rank.communicator();
    Device device = toHostMemory ? communicator.hostDevice() : rank.device();
    TestConnection link =
        TestConnection.to(rank, 1 - rank.rank(), 0, transport, device.allocate(2L * SIZE));
    try (Host2HostSemaphore semaphore = new Host2HostSemaphore(communicator, link.connection)) {
      communicator.setup().join();
      SemaphoreTest.exchange(rank, link, semaphore::signal, () -> semaphore.await(TIMEOUT));
      link.connection.flush(TIMEOUT).join();
      communicator.rendezvous(link.peer, 0, Deadline.after(TIMEOUT)).join();
    }
  }

  @Test
  void shouldRefuseATransportThatReachesNoHostMemory(LocalRank rank) {
    TestConnection link = TestConnection.to(rank, 1 - rank.rank(), 0, Transport.CUDA_IPC, 64);
    assertRefused(
        () -> new Host2HostSemaphore(rank.communicator(), link.connection),
        "CUDA_IPC reaches no memory of the host");
    rank.communicator().rendezvous(link.peer, 0, Deadline.after(TIMEOUT)).join();
  }

  @Test
  void shouldRefuseGpuMemoryOverSharedMemory(LocalRank rank) {
    DeviceBuffer buffer = rank.device().allocate(64);
    assertRefused(
        () -> rank.communicator().registerMemory(buffer, TransportFlags.of(Transport.SHM)),
        "use CUDA_IPC for GPUs");
  }
}
