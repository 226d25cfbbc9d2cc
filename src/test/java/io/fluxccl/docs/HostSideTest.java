// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.docs;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.Deadline;
import io.fluxccl.NonblockingFuture;
import io.fluxccl.bootstrap.BootstrapOptions;
import io.fluxccl.bootstrap.TcpBootstrap;
import io.fluxccl.bootstrap.UniqueId;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.semaphore.Host2HostSemaphore;
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.testkit.Ranks;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.EndpointConfig;
import io.fluxccl.transport.RegisteredMemory;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.TransportFlags;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.Test;

/** The code of docs/2-host-side.md. */
@org.junit.jupiter.api.Timeout(60)
class HostSideTest {
  static int meetById(String id, int rank, int nRanks) {
    BootstrapOptions options = BootstrapOptions.builder().timeout(Duration.ofSeconds(30)).build();
    try (TcpBootstrap bootstrap = TcpBootstrap.create(rank, nRanks, options)) {
      bootstrap.initialize(UniqueId.fromBase64(id)).join();
      byte[] mine = {(byte) rank};
      Deadline deadline = Deadline.after(Duration.ofSeconds(30));
      List<byte[]> all = bootstrap.allGather(mine, deadline).join();
      bootstrap.barrier(deadline).join();
      return all.size();
    }
  }

  @Test
  void shouldMeetById() {
    String id = UniqueId.create().toBase64();
    CompletableFuture<Integer> other = CompletableFuture.supplyAsync(() -> meetById(id, 1, 2));
    assertThat(meetById(id, 0, 2)).isEqualTo(2);
    assertThat(other.join()).isEqualTo(2);
  }

  /** Everything that two ranks need to move bytes to each other. */
  static final class Link {
    final Connection connection;
    final DeviceBuffer buffer;
    final RegisteredMemory mine;
    final RegisteredMemory theirs;
    final Host2HostSemaphore semaphore;

    Link(Communicator communicator, int peer) {
      // 1. Connect.
      NonblockingFuture<Connection> link =
          communicator.connectOnSetup(peer, 0, EndpointConfig.of(Transport.SHM));
      communicator.setup().join();
      connection = link.join();

      // 2. Register memory and exchange it.
      buffer = communicator.device().allocate(1024);
      mine = communicator.registerMemory(buffer, TransportFlags.of(Transport.SHM));
      communicator.sendMemoryOnSetup(mine, peer, 0);
      NonblockingFuture<RegisteredMemory> coming = communicator.recvMemoryOnSetup(peer, 0);
      communicator.setup().join();
      theirs = coming.join();

      // 3. Semaphores, over the connection.
      semaphore = new Host2HostSemaphore(communicator, connection);
      communicator.setup().join();
    }
  }

  static long swap(Link link, long value) {
    Duration timeout = Duration.ofSeconds(30);
    ByteBuffer word = ByteBuffer.allocate(8).order(ByteOrder.nativeOrder());
    link.buffer.upload(0, word.putLong(0, value));
    link.connection.write(link.theirs, 512, link.mine, 0, 8);
    link.semaphore.signal();
    link.semaphore.await(timeout);
    link.buffer.download(512, word.clear());
    link.connection.flush(timeout).join();
    return word.getLong(0);
  }

  @Test
  @Ranks(value = 2, leakCheck = false)
  void shouldMoveBytesFromTheHost(LocalRank rank) {
    int peer = 1 - rank.rank();
    Link link = new Link(rank.communicator(), peer);
    assertThat(swap(link, 100 + rank.rank())).isEqualTo(100 + peer);
  }
}
