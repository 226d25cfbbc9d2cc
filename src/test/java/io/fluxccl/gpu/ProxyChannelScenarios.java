// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.gpu;

import static org.assertj.core.api.Assertions.assertThat;
import static org.awaitility.Awaitility.await;

import io.fluxccl.InvalidUsage;
import io.fluxccl.channel.ProxyChannel;
import io.fluxccl.channel.ProxyService;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.Kernel;
import io.fluxccl.device.PinnedBuffer;
import io.fluxccl.gpu.GpuLink.Proxied;
import io.fluxccl.proxy.ProxyOptions;
import io.fluxccl.semaphore.Host2DeviceSemaphore;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.Transport;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;

/** Scenarios of two ranks over ProxyChannels and the layers below. */
final class ProxyChannelScenarios {
  private static final int THREADS = 256;
  private static final int WORD = Integer.BYTES;
  private static final int DONE = 1;
  private static final int GAVE_UP = 2;

  private ProxyChannelScenarios() {}

  static void playPingPong(GpuRank rank, Transport transport) throws Exception {
    for (long bytes : new long[] {4, 1024, 4 << 20}) {
      for (int flush = 0; flush < 2; flush++) {
        long receiveOffset = bytes + 15 & -16;
        GpuLink link = GpuLink.over(rank, transport, 2 * receiveOffset);
        Proxied proxied = link.proxied().start();
        int rounds = rank.rounds(bytes > 100_000 ? 30 : 500);
        DeviceBuffer wrong = rank.allocate(WORD);
        DeviceBuffer done = rank.allocate(WORD);
        rank.barrier();
        rank.run(
            TestKernels.of("proxy_channel", "proxyPingPong"),
            1,
            THREADS,
            proxied.channel(),
            link.buffer,
            rank.rank(),
            rounds,
            bytes,
            receiveOffset,
            flush,
            1,
            wrong,
            done);
        rank.assertNothingWrong(wrong);
        assertThat(GpuRank.readInt(done, 0)).isEqualTo(rounds);
        rank.barrier();
      }
    }
  }

  static void keepOrder(GpuRank rank, Transport transport) throws Exception {
    long bytes = 4096;
    GpuLink link = GpuLink.over(rank, transport, 2 * bytes);
    Proxied proxied = link.proxied().start();
    DeviceBuffer wrong = rank.allocate(WORD);
    rank.barrier();
    rank.run(
        TestKernels.of("ranges", "proxyBothWays"),
        1,
        THREADS,
        proxied.channel(),
        link.buffer,
        rank.rank(),
        rank.rounds(3000),
        bytes,
        bytes,
        wrong);
    rank.assertNothingWrong(wrong);
  }

  static void flushOneChannel(GpuRank rank, Transport transport) throws Exception {
    int threads = 4;
    long bytes = 4096;
    int rounds = rank.rounds(500);
    GpuLink link = GpuLink.over(rank, transport, 2 * threads * bytes);
    Proxied proxied = link.proxied().start();
    DeviceBuffer wrong = rank.allocate(WORD);
    rank.barrier();
    rank.run(
        TestKernels.of("ranges", "proxyFlushes"),
        1,
        threads,
        proxied.channel(),
        link.buffer,
        rank.rank(),
        rounds,
        bytes,
        threads * bytes,
        wrong);
    rank.assertNothingWrong(wrong);
    // The peer's flushes have returned too: what it put must be here, without any signal.
    rank.barrier();
    rank.run(
        TestKernels.of("ranges", "checkPieces"),
        1,
        threads,
        link.buffer.slice(threads * bytes, threads * bytes),
        rank.peer(),
        rounds - 1,
        bytes,
        wrong);
    rank.assertNothingWrong(wrong);
  }

  static void flushFourChannels(GpuRank rank, Transport transport) throws Exception {
    int channels = 4;
    long bytes = 4096;
    int rounds = rank.rounds(300);
    GpuLink link = GpuLink.over(rank, transport, channels * bytes);
    ProxyService service = rank.own(new ProxyService(rank.communicator()));
    int[] semaphores = new int[channels];
    for (int i = 0; i < channels; i++) {
      semaphores[i] = service.buildAndAddSemaphore(rank.communicator(), link.connection);
    }
    rank.communicator().setup().join();
    int target = service.addMemory(link.remote);
    int source = service.addMemory(link.local);
    ProxyChannel[] made = new ProxyChannel[channels];
    for (int i = 0; i < channels; i++) {
      made[i] = service.proxyChannel(semaphores[i], target, source);
    }
    service.startProxy();
    DeviceBuffer done = rank.allocate(channels * WORD);
    rank.barrier();
    rank.run(
        TestKernels.of("proxy_channel", "proxyFourFlushes"),
        channels,
        1,
        made[0],
        made[1],
        made[2],
        made[3],
        rounds,
        bytes,
        done);
    for (int i = 0; i < channels; i++) {
      assertThat(GpuRank.readInt(done, (long) i * WORD)).as("channel " + i).isEqualTo(rounds);
    }
  }

  static void putAnyRange(GpuRank rank, Transport transport) throws Exception {
    int size = 1 << 16;
    // Lower half sent, upper half received.
    GpuLink link = GpuLink.over(rank, transport, 2L * size);
    Proxied proxied = link.proxied().start();
    DeviceBuffer done = rank.allocate(WORD);
    Kernel put = TestKernels.of("ranges", "proxyPutRange");
    Random random = new Random(4712);
    for (int round = 0; round < 24; round++) {
      int bytes = round < 8 ? round + 1 : 1 + random.nextInt(40_000);
      int to = size + random.nextInt(size - bytes);
      int from = random.nextInt(size - bytes);
      byte[] before = new byte[2 * size];
      new Random(round).nextBytes(before);
      GpuRank.write(link.buffer, before);
      rank.barrier();
      rank.run(put, 1, 1, proxied.channel(), (long) to, (long) from, (long) bytes, done);
      assertThat(GpuRank.readInt(done, 0)).isEqualTo(DONE);
      rank.barrier();
      byte[] expected = before.clone();
      System.arraycopy(before, from, expected, to, bytes);
      assertThat(Arrays.mismatch(GpuRank.read(link.buffer), expected))
          .as("first wrong byte of %d from %d to %d", bytes, from, to)
          .isEqualTo(-1);
      rank.barrier();
    }
  }

  static void failAlone(GpuRank rank) throws Exception {
    GpuLink link = GpuLink.over(rank, Transport.CUDA_IPC, 64);
    AtomicReference<String> told = new AtomicReference<>();
    ProxyService service =
        rank.own(
            new ProxyService(
                rank.communicator(),
                64,
                ProxyOptions.builder().threadInit(rank.device()::bindThread).build(),
                (id, peer, reason) -> told.set(id + " " + peer + " " + reason.code())));
    int bad = service.buildAndAddSemaphore(rank.communicator(), link.connection);
    int good = service.buildAndAddSemaphore(rank.communicator(), link.connection);
    rank.communicator().setup().join();
    int target = service.addMemory(link.remote);
    int source = service.addMemory(link.local);
    ProxyChannel badChannel = service.proxyChannel(bad, target, source);
    long limit = 1L << 32;
    long[][] unfit = {{0, 0, limit}, {limit, 0, 8}, {0, limit + 16, 8}, {0, 0, -8}};
    ProxyChannel[] unfitChannels = new ProxyChannel[unfit.length];
    for (int i = 0; i < unfit.length; i++) {
      int id = service.buildAndAddSemaphore(rank.communicator(), link.connection);
      unfitChannels[i] = service.proxyChannel(id, target, source);
    }
    rank.communicator().setup().join();
    ProxyChannel goodChannel = service.proxyChannel(good, target, source);
    service.startProxy();
    DeviceBuffer done = rank.allocate(WORD);
    Kernel put = TestKernels.of("ranges", "proxyPutRange");
    rank.run(put, 1, 1, badChannel, 60L, 0L, 8L, done);
    assertThat(GpuRank.readInt(done, 0)).isEqualTo(GAVE_UP);
    assertThat(service.failure(bad)).isInstanceOf(InvalidUsage.class).hasMessageContaining("64");
    // The kernel may see the failure before the host's handler is called.
    await()
        .atMost(Duration.ofSeconds(60))
        .untilAsserted(() -> assertThat(told).hasValue(bad + " " + rank.peer() + " INVALID_USAGE"));
    // The failed channel stays failed, and puts fail at once.
    rank.run(put, 1, 1, badChannel, 0L, 0L, 8L, done);
    assertThat(GpuRank.readInt(done, 0)).isEqualTo(GAVE_UP);
    rank.run(put, 1, 1, goodChannel, 0L, 32L, 8L, done);
    assertThat(GpuRank.readInt(done, 0)).isEqualTo(DONE);
    assertThat(service.failure(good)).isNull();
    for (int i = 0; i < unfit.length; i++) {
      rank.run(put, 1, 1, unfitChannels[i], unfit[i][0], unfit[i][1], unfit[i][2], done);
      assertThat(GpuRank.readInt(done, 0)).isEqualTo(GAVE_UP);
      int id = good + 1 + i;
      await()
          .atMost(Duration.ofSeconds(60))
          .untilAsserted(
              () ->
                  assertThat(service.failure(id))
                      .isInstanceOf(InvalidUsage.class)
                      .hasMessageContaining("split the transfer"));
    }
  }

  static void signalFromHost(GpuRank rank, Transport transport) throws Exception {
    GpuLink link = GpuLink.over(rank, transport, 64);
    Host2DeviceSemaphore semaphore =
        rank.own(new Host2DeviceSemaphore(rank.communicator(), link.connection));
    rank.communicator().setup().join();
    PinnedBuffer taken = rank.own(rank.device().allocatePinned(64));
    DeviceBuffer polled = rank.allocate(WORD);
    Kernel poll = TestKernels.of("semaphore", "semaphorePoll");
    rank.run(poll, 1, 1, semaphore, polled);
    assertThat(GpuRank.readInt(polled, 0)).as("a poll before any signal").isEqualTo(GAVE_UP);
    rank.barrier();
    int signals = 50;
    rank.launch(TestKernels.of("semaphore", "semaphoreTake"), 1, 1, semaphore, signals, taken);
    for (int i = 0; i < signals; i++) {
      semaphore.signal();
    }
    rank.await();
    assertThat(taken.buffer().getIntVolatile(0)).isEqualTo(signals);
    rank.barrier();
    semaphore.signal();
    link.connection.flush(GpuRank.PATIENCE).join();
    rank.barrier();
    rank.run(poll, 1, 1, semaphore, polled);
    assertThat(GpuRank.readInt(polled, 0)).as("a poll behind a signal").isEqualTo(DONE);
  }

  static void flushFromHost(GpuRank rank, Transport transport) throws Exception {
    int threads = 4;
    int piece = 1 << 16;
    GpuLink link = GpuLink.over(rank, transport, 2L * threads * piece);
    byte[] content = new byte[2 * threads * piece];
    new Random(rank.rank()).nextBytes(content);
    GpuRank.write(link.buffer, content);
    rank.barrier();
    Connection connection = link.connection;
    List<CompletableFuture<Void>> done = new ArrayList<>();
    for (int thread = 0; thread < threads; thread++) {
      long offset = (long) thread * piece;
      done.add(
          CompletableFuture.runAsync(
              () -> {
                for (int round = 0; round < 50; round++) {
                  connection.write(
                      link.remote, (long) threads * piece + offset, link.local, offset, piece);
                  connection.flush(GpuRank.PATIENCE).join();
                }
              },
              task -> new Thread(task, "flush").start()));
    }
    CompletableFuture.allOf(done.toArray(new CompletableFuture<?>[0]))
        .get(GpuRank.PATIENCE.toSeconds(), TimeUnit.SECONDS);
    rank.barrier();
    byte[] fromPeer = new byte[2 * threads * piece];
    new Random(rank.peer()).nextBytes(fromPeer);
    byte[] expected = content.clone();
    System.arraycopy(fromPeer, 0, expected, threads * piece, threads * piece);
    assertThat(Arrays.mismatch(GpuRank.read(link.buffer), expected)).isEqualTo(-1);
  }
}
