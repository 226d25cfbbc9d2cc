// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.docs;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.catchThrowableOfType;

import io.fluxccl.Aborted;
import io.fluxccl.DataType;
import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.fluxccl.NonblockingFuture;
import io.fluxccl.Timeout;
import io.fluxccl.bootstrap.Bootstrap;
import io.fluxccl.bootstrap.BootstrapOptions;
import io.fluxccl.bootstrap.JobSecret;
import io.fluxccl.bootstrap.TcpBootstrap;
import io.fluxccl.bootstrap.UniqueId;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.FloatView;
import io.fluxccl.device.host.HostDevice;
import io.fluxccl.semaphore.Host2HostSemaphore;
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.testkit.LocalRanks;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.EndpointConfig;
import io.fluxccl.transport.RegisteredMemory;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.TransportFlags;
import java.net.ServerSocket;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.Test;
import reactor.core.publisher.Mono;

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

  static CompletableFuture<TcpBootstrap> meetAt(String address, String secret, int rank) {
    BootstrapOptions options = BootstrapOptions.builder().secret(JobSecret.of(secret)).build();
    TcpBootstrap bootstrap = TcpBootstrap.create(rank, 2, options);
    return bootstrap.initialize(address).thenApply(ready -> bootstrap);
  }

  @Test
  void shouldMeetById() {
    String id = UniqueId.create().toBase64();
    CompletableFuture<Integer> other = CompletableFuture.supplyAsync(() -> meetById(id, 1, 2));
    assertThat(meetById(id, 0, 2)).isEqualTo(2);
    assertThat(other.join()).isEqualTo(2);
  }

  @Test
  void shouldMeetAtAnAddress() throws Exception {
    int port;
    try (ServerSocket probe = new ServerSocket(0)) {
      port = probe.getLocalPort();
    }
    String secret = JobSecret.random().text();
    CompletableFuture<TcpBootstrap> zero = meetAt("127.0.0.1:" + port, secret, 0);
    CompletableFuture<TcpBootstrap> one = meetAt("127.0.0.1:" + port, secret, 1);
    try (Bootstrap first = zero.join();
        Bootstrap second = one.join()) {
      assertThat(first.nRanksPerNode()).isEqualTo(2);
      assertThat(second.localRank()).isEqualTo(1);
    }
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

  static CompletableFuture<Connection> connect(Communicator communicator, int peer) {
    NonblockingFuture<Connection> link =
        communicator.connectOnSetup(peer, 1, EndpointConfig.of(Transport.ETHERNET));
    return communicator.setup().thenCompose(done -> link);
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

  static Mono<Void> swapReactively(Link link) {
    Duration timeout = Duration.ofSeconds(30);
    return Mono.fromRunnable(
            () -> {
              link.connection.write(link.theirs, 512, link.mine, 0, 8);
              link.semaphore.signal();
            })
        .then(link.semaphore.arrival(timeout))
        .then(Mono.fromFuture(() -> link.connection.flush(timeout)));
  }

  @Test
  void shouldMoveBytesFromTheHost() {
    try (LocalRanks ranks = LocalRanks.of(2)) {
      ranks.run(
          rank -> {
            int peer = 1 - rank.rank();
            Link link = new Link(rank.communicator(), peer);
            assertThat(swap(link, 100 + rank.rank())).isEqualTo(100 + peer);
            swapReactively(link).block(Duration.ofSeconds(30));
            assertThat(connect(rank.communicator(), peer).join().transport())
                .isEqualTo(Transport.ETHERNET);
          });
    }
  }

  static String whyNoSignal(Host2HostSemaphore semaphore) {
    try {
      semaphore.await(Duration.ofMillis(50));
      return "came";
    } catch (Timeout e) {
      return "rank " + e.rank() + " is late: " + e.getMessage();
    }
  }

  static void giveUp(Communicator communicator) {
    int rank = communicator.bootstrap().rank();
    communicator.abort(new Aborted(rank, "the input of rank " + rank + " is broken"));
  }

  static CompletableFuture<String> watch(Communicator communicator) {
    return communicator.failed().thenApply(why -> why.code() + " by rank " + why.rank());
  }

  @Test
  void shouldEndEveryRankWhenOneGivesUp() {
    try (LocalRanks ranks = LocalRanks.of(2)) {
      ranks.run(rank -> assertThat(whyNoSignal(linkOf(rank).semaphore)).startsWith("rank "));
      Communicator zero = ranks.ranks().get(0).communicator();
      CompletableFuture<String> seen = watch(zero);
      giveUp(ranks.ranks().get(1).communicator());
      assertThat(seen.orTimeout(60, java.util.concurrent.TimeUnit.SECONDS).join())
          .isEqualTo("ABORTED by rank 1");
      FluxCclException why =
          catchThrowableOfType(FluxCclException.class, () -> throwFrom(zero.setup()));
      assertThat(why).hasMessageContaining("input of rank 1");
    }
  }

  private static void throwFrom(CompletableFuture<Void> future) {
    try {
      future.join();
    } catch (RuntimeException e) {
      throw FluxCclException.from(e);
    }
  }

  private static Link linkOf(LocalRank rank) {
    return new Link(rank.communicator(), 1 - rank.rank());
  }

  static float[] halves(Device device) {
    try (FloatView x = device.allocateFloats(2, 3);
        FloatView half = FloatView.of(device.allocate(4), DataType.FLOAT16)) {
      x.put(new float[] {1, 2, 3, 4, 5, 6}); // one copy
      x.put(1, 0, 2.5f); // one element of row 1; slow on a GPU
      half.put(0, x.get(1, 0));
      return half.toArray();
    }
  }

  @Test
  void shouldReadAndWriteValues() {
    try (HostDevice device = HostDevice.create()) {
      assertThat(halves(device)).containsExactly(2.5f, 0);
    }
  }
}
