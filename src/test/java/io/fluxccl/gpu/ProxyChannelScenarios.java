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
import io.fluxccl.proxy.ProxyOptions;
import io.fluxccl.semaphore.Host2DeviceSemaphore;
import io.fluxccl.testing.Bytes;
import io.fluxccl.transport.Transport;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.concurrent.atomic.AtomicReference;
import org.awaitility.core.ThrowingRunnable;

/** Scenarios of two ranks over ProxyChannels and the layers below. */
final class ProxyChannelScenarios {
  private static final int THREADS = 256;
  private static final int WORD = Integer.BYTES;
  private static final int DONE = 1;
  private static final int GAVE_UP = 2;

  private ProxyChannelScenarios() {}

  static void playPingPong(GpuRank rank, Transport transport) throws Exception {
    Kernel kernel = TestKernels.of("proxy_channel", "proxyPingPong");
    for (long bytes : new long[] {4, 1024, 4 << 20}) {
      for (int flush = 0; flush < 2; flush++) {
        long offset = bytes + 15 & -16;
        GpuLink link = GpuLink.over(rank, transport, 2 * offset);
        ProxyChannel channel = link.proxied().start().channel();
        int rounds = rank.rounds(bytes > 100_000 ? 30 : 500);
        Object[] args = {channel, link.buffer(), rank.rank(), rounds, bytes, offset, flush, 1};
        assertThat(rank.count(kernel, 1, THREADS, args)).isEqualTo(rounds);
      }
    }
  }

  static void keepOrder(GpuRank rank, Transport transport) throws Exception {
    long bytes = 4096;
    GpuLink link = GpuLink.over(rank, transport, 2 * bytes);
    ProxyChannel channel = link.proxied().start().channel();
    Object[] args = {channel, link.buffer(), rank.rank(), rank.rounds(3000), bytes, bytes};
    rank.check(TestKernels.of("ranges", "proxyBothWays"), 1, THREADS, args);
  }

  static void flushOneChannel(GpuRank rank, Transport transport) throws Exception {
    int threads = 4;
    long bytes = 4096;
    long half = threads * bytes;
    int rounds = rank.rounds(500);
    GpuLink link = GpuLink.over(rank, transport, 2 * half);
    ProxyChannel channel = link.proxied().start().channel();
    Object[] args = {channel, link.buffer(), rank.rank(), rounds, bytes, half};
    rank.check(TestKernels.of("ranges", "proxyFlushes"), 1, threads, args);
    // The peer's flushes have returned too: what it put must be here, without any signal.
    Object[] received = {link.buffer().slice(half, half), rank.peer(), rounds - 1, bytes};
    rank.check(TestKernels.of("ranges", "checkPieces"), 1, threads, received);
  }

  static void flushFourChannels(GpuRank rank, Transport transport) throws Exception {
    int channels = 4;
    long bytes = 4096;
    int rounds = rank.rounds(300);
    GpuLink link = GpuLink.over(rank, transport, channels * bytes);
    ProxyService service = rank.own(new ProxyService(rank.communicator()));
    List<Object> args = new ArrayList<>(link.proxyChannels(service, channels));
    service.startProxy();
    DeviceBuffer done = rank.allocate(channels * WORD);
    args.addAll(List.of(rounds, bytes, done));
    rank.barrier();
    rank.run(TestKernels.of("proxy_channel", "proxyFourFlushes"), channels, 1, args.toArray());
    for (int i = 0; i < channels; i++) {
      assertThat(GpuRank.readInt(done, (long) i * WORD)).as("channel " + i).isEqualTo(rounds);
    }
  }

  static void putAnyRange(GpuRank rank, Transport transport) throws Exception {
    int size = 1 << 16;
    // Lower half sent, upper half received.
    GpuLink link = GpuLink.over(rank, transport, 2L * size);
    ProxyChannel channel = link.proxied().start().channel();
    Random random = new Random(4712);
    for (int round = 0; round < 24; round++) {
      int bytes = round < 8 ? round + 1 : 1 + random.nextInt(40_000);
      int to = size + random.nextInt(size - bytes);
      int from = random.nextInt(size - bytes);
      byte[] before = new byte[2 * size];
      new Random(round).nextBytes(before);
      link.buffer().upload(0, before);
      rank.barrier();
      assertThat(put(rank, channel, to, from, bytes)).isEqualTo(DONE);
      rank.barrier();
      byte[] expected = before.clone();
      System.arraycopy(before, from, expected, to, bytes);
      assertThat(Arrays.mismatch(Bytes.of(link.buffer()), expected))
          .as("first wrong byte of %d from %d to %d", bytes, from, to)
          .isEqualTo(-1);
      rank.barrier();
    }
  }

  static void failAlone(GpuRank rank) throws Exception {
    GpuLink link = GpuLink.over(rank, Transport.CUDA_IPC, 64);
    AtomicReference<String> told = new AtomicReference<>();
    ProxyOptions options = ProxyOptions.builder().threadInit(rank.device()::bindThread).build();
    ProxyService service =
        rank.own(
            new ProxyService(
                rank.communicator(),
                64,
                options,
                (id, peer, reason) -> told.set(id + " " + peer + " " + reason.code())));
    long limit = 1L << 32;
    long[][] unfit = {{0, 0, limit}, {limit, 0, 8}, {0, limit + 16, 8}, {0, 0, -8}};
    List<ProxyChannel> channels = link.proxyChannels(service, 2 + unfit.length);
    service.startProxy();
    assertThat(put(rank, channels.get(0), 60, 0, 8)).isEqualTo(GAVE_UP);
    assertThat(service.failure(0)).isInstanceOf(InvalidUsage.class).hasMessageContaining("64");
    // The kernel may see the failure before the host's handler is called.
    awaitSoon(() -> assertThat(told).hasValue("0 " + rank.peer() + " INVALID_USAGE"));
    // The failed channel stays failed, and puts fail at once.
    assertThat(put(rank, channels.get(0), 0, 0, 8)).isEqualTo(GAVE_UP);
    assertThat(put(rank, channels.get(1), 0, 32, 8)).isEqualTo(DONE);
    assertThat(service.failure(1)).isNull();
    for (int i = 0; i < unfit.length; i++) {
      int id = 2 + i;
      assertThat(put(rank, channels.get(id), unfit[i])).isEqualTo(GAVE_UP);
      awaitSoon(
          () ->
              assertThat(service.failure(id))
                  .isInstanceOf(InvalidUsage.class)
                  .hasMessageContaining("split the transfer"));
    }
  }

  /** Puts a range, and returns how the kernel ended: {@link #DONE} or {@link #GAVE_UP}. */
  private static int put(GpuRank rank, ProxyChannel channel, long... toFromBytes) throws Exception {
    DeviceBuffer end = rank.allocate(WORD);
    Kernel put = TestKernels.of("ranges", "proxyPutRange");
    rank.run(put, 1, 1, channel, toFromBytes[0], toFromBytes[1], toFromBytes[2], end);
    return GpuRank.readInt(end, 0);
  }

  private static void awaitSoon(ThrowingRunnable assertion) {
    await().atMost(Duration.ofSeconds(60)).untilAsserted(assertion);
  }

  static void signalFromHost(GpuRank rank, Transport transport) throws Exception {
    GpuLink link = GpuLink.over(rank, transport, 64);
    Host2DeviceSemaphore semaphore =
        rank.own(new Host2DeviceSemaphore(rank.communicator(), link.connection()));
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
    link.connection().flush(GpuRank.PATIENCE).join();
    rank.barrier();
    rank.run(poll, 1, 1, semaphore, polled);
    assertThat(GpuRank.readInt(polled, 0)).as("a poll behind a signal").isEqualTo(DONE);
  }
}
