// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.semaphore;

import static io.fluxccl.testing.FailureAssertions.assertRefused;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.Deadline;
import io.fluxccl.NonblockingFuture;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.testing.EmulatedGpus;
import io.fluxccl.testing.RequiresGpus;
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.testkit.Ranks;
import io.fluxccl.testkit.TestConnection;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.EndpointConfig;
import io.fluxccl.transport.RegisteredMemory;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.TransportFlags;
import java.time.Duration;
import java.util.Arrays;
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
  private static final int ROUNDS = 20;
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
    int peer = 1 - rank.rank();
    try (DeviceBuffer buffer = device.allocate(2L * SIZE);
        RegisteredMemory local =
            communicator.registerMemory(buffer, TransportFlags.of(transport))) {
      NonblockingFuture<Connection> queued =
          communicator.connectOnSetup(peer, 0, EndpointConfig.of(transport));
      communicator.sendMemoryOnSetup(local, peer, 0);
      NonblockingFuture<RegisteredMemory> theirs = communicator.recvMemoryOnSetup(peer, 0);
      communicator.setup().join();
      Connection connection = queued.join();
      try (RegisteredMemory remote = theirs.join();
          Host2HostSemaphore semaphore = new Host2HostSemaphore(communicator, connection)) {
        communicator.setup().join();
        byte[] seen = new byte[SIZE];
        for (int round = 1; round <= ROUNDS; round++) {
          buffer.upload(0, filled(rank.rank(), round));
          connection.write(remote, SIZE, local, 0, SIZE);
          semaphore.signal();
          semaphore.await(TIMEOUT);
          buffer.download(SIZE, seen);
          assertThat(seen).isEqualTo(filled(peer, round));
          // The peer must have read before the next round overwrites.
          semaphore.signal();
          semaphore.arrival(TIMEOUT).block(TIMEOUT);
        }
        connection.flush(TIMEOUT).join();
        communicator.rendezvous(peer, 0, Deadline.after(TIMEOUT)).join();
      }
    }
  }

  private static byte[] filled(int rank, int round) {
    byte[] bytes = new byte[SIZE];
    Arrays.fill(bytes, (byte) (rank * 100 + round));
    return bytes;
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
