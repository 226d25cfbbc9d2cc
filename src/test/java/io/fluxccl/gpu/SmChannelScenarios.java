// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.gpu;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.channel.PacketType;
import io.fluxccl.channel.SmChannel;
import io.fluxccl.device.AbortFlag;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.Kernel;
import io.fluxccl.semaphore.SmDevice2DeviceSemaphore;
import io.fluxccl.testing.Bytes;
import io.fluxccl.transport.Transport;
import java.util.Arrays;
import java.util.Random;

/** Scenarios of two ranks over SmChannels. */
final class SmChannelScenarios {
  private static final int THREADS = 512;
  private static final int WORD = Integer.BYTES;

  private SmChannelScenarios() {}

  /** Returns the offset of received data: the first multiple of 16 after the sent data. */
  private static long receiveOffset(long bytes) {
    return bytes + 15 & -16;
  }

  static void playPingPong(GpuRank rank) throws Exception {
    for (long bytes : new long[] {4, 12, 1024, 4 << 20}) {
      for (int unit : new int[] {4, 8, 16}) {
        long offset = receiveOffset(bytes);
        int rounds = rank.rounds(bytes > 100_000 ? 50 : 1000);
        Kernel kernel = TestKernels.of("sm_channel", "smPutPingPong" + unit);
        SmChannel channel = channel(rank, 2 * offset);
        assertThat(rank.count(kernel, 1, THREADS, channel, rank.rank(), rounds, bytes, offset, 1))
            .isEqualTo(rounds);
      }
    }
  }

  /** Returns a channel from a new buffer to the peer's, which also receives here. */
  private static SmChannel channel(GpuRank rank, long bytes) {
    GpuLink link = GpuLink.over(rank, Transport.CUDA_IPC, bytes);
    return link.smChannel(link.buffer());
  }

  static void playPingPongByGrids(GpuRank rank) throws Exception {
    long bytes = 1 << 20;
    int rounds = rank.rounds(500);
    // Both ranks' blocks fit at once, should they share a GPU.
    int blocks = Math.max(1, rank.device().multiprocessors() / 2);
    Kernel kernel = TestKernels.of("sm_channel", "smGridPutPingPong");
    SmChannel channel = channel(rank, 2 * bytes);
    DeviceBuffer syncer = rank.allocate(128);
    AbortFlag abort = rank.communicator().abortFlag();
    Object[] args = {channel, syncer, abort, rank.rank(), rounds, bytes, bytes};
    assertThat(rank.count(kernel, blocks, THREADS, args)).isEqualTo(rounds);
  }

  static void getWhatThePeerHas(GpuRank rank) throws Exception {
    long bytes = 1 << 16;
    int rounds = rank.rounds(500);
    Kernel kernel = TestKernels.of("sm_channel", "smGetPingPong");
    SmChannel channel = channel(rank, 2 * bytes);
    assertThat(rank.count(kernel, 1, THREADS, channel, rank.rank(), rounds, bytes, bytes))
        .isEqualTo(rounds);
  }

  static void keepOrder(GpuRank rank) throws Exception {
    long bytes = 1 << 14;
    int rounds = rank.rounds(10_000);
    Kernel kernel = TestKernels.of("ranges", "smBothWays");
    SmChannel channel = channel(rank, 2 * bytes);
    rank.check(kernel, 1, THREADS, channel, rank.rank(), rounds, bytes, bytes);
  }

  /** Every byte of the range arrives, and none beside it changes. */
  static void moveAnyRange(GpuRank rank, boolean get) throws Exception {
    int size = 1 << 16;
    GpuLink link = GpuLink.over(rank, Transport.CUDA_IPC, size);
    DeviceBuffer data = rank.allocate(size);
    SmChannel channel = link.smChannel(data);
    Kernel move = TestKernels.of("ranges", "smMove");
    // A put writes the peer's buffer, a get this side's data.
    DeviceBuffer written = get ? data : link.buffer();
    DeviceBuffer read = get ? link.buffer() : data;
    Random random = new Random(4711);
    for (int round = 0; round < 60; round++) {
      int alignment = new int[] {4, 8, 16}[round % 3];
      int bytes = round < 20 ? round : 1 + random.nextInt(20_000);
      // A third of them aligned as the unit wants it, a third to words, a third to nothing.
      int step = new int[] {alignment, 4, 1}[round / 3 % 3];
      int to = random.nextInt(size - bytes) / step * step;
      int from = random.nextInt(size - bytes) / step * step;
      // Both ranks generate equal values, so that each knows the other's data.
      byte[] before = new byte[size];
      Arrays.fill(before, (byte) round);
      byte[] source = new byte[size];
      new Random(round).nextBytes(source);
      written.upload(0, before);
      read.upload(0, source);
      rank.barrier();
      long target = get ? from : to;
      long origin = get ? to : from;
      Object[] args = {channel, get ? 1 : 0, alignment, 1, target, origin, (long) bytes};
      rank.run(move, 1 + round % 4, 96, args);
      rank.barrier();
      byte[] expected = before.clone();
      System.arraycopy(source, from, expected, to, bytes);
      assertThat(Arrays.mismatch(Bytes.of(written), expected))
          .as("first wrong byte of %d from %d to %d in units of %d", bytes, from, to, alignment)
          .isEqualTo(-1);
      rank.barrier();
    }
  }

  static void leaveTheRemainder(GpuRank rank) throws Exception {
    int size = 256;
    GpuLink link = GpuLink.over(rank, Transport.CUDA_IPC, size);
    DeviceBuffer data = rank.allocate(size);
    SmChannel channel = link.smChannel(data);
    Kernel move = TestKernels.of("ranges", "smMove");
    byte[] ones = new byte[size];
    Arrays.fill(ones, (byte) 1);
    data.upload(0, ones);
    for (int alignment : new int[] {4, 8, 16}) {
      link.buffer().upload(0, new byte[size]);
      rank.barrier();
      long bytes = alignment * 2L + 3;
      rank.run(move, 1, 32, channel, 0, alignment, 0, 0L, 0L, bytes);
      rank.run(move, 1, 32, channel, 0, alignment, 1, 128L, 0L, bytes);
      rank.barrier();
      byte[] expected = new byte[size];
      Arrays.fill(expected, 0, alignment * 2, (byte) 1);
      Arrays.fill(expected, 128, 128 + (int) bytes, (byte) 1);
      assertThat(Bytes.of(link.buffer())).as("units of " + alignment).isEqualTo(expected);
      rank.barrier();
    }
  }

  static void exchangePackets(GpuRank rank, PacketType type) throws Exception {
    String name = type == PacketType.LL8 ? "smPacketPingPongLl8" : "smPacketPingPongLl16";
    Kernel kernel = TestKernels.of("sm_channel", name);
    for (long bytes : new long[] {8, 1000, 1 << 18}) {
      GpuLink link = GpuLink.over(rank, Transport.CUDA_IPC, 2 * bytes);
      long offset = receiveOffset(bytes);
      SmChannel channel = link.smChannel(rank.allocate(2 * offset));
      int rounds = rank.rounds(bytes > 100_000 ? 100 : 2000);
      // Launched twice, because flags keep their values between launches.
      for (int flag : new int[] {1, 1 + rounds}) {
        Object[] args = {channel, rank.rank(), rounds, bytes, offset, flag, 1};
        assertThat(rank.count(kernel, 1, THREADS, args)).as("threads").isEqualTo(THREADS);
      }
    }
  }

  static void countSignals(GpuRank rank) throws Exception {
    GpuLink link = GpuLink.over(rank, Transport.CUDA_IPC, 64);
    SmDevice2DeviceSemaphore semaphore = link.semaphore();
    DeviceBuffer done = rank.allocate(WORD);
    rank.barrier();
    int rounds = rank.rounds(10_000);
    for (String kernel :
        new String[] {"semaphorePingPong", "semaphoreRelaxedPingPong", "semaphorePingPong"}) {
      // The counts continue from one launch to the next.
      rank.run(TestKernels.of("semaphore", kernel), 1, 1, semaphore, rank.rank(), rounds, done);
      assertThat(GpuRank.readInt(done, 0)).as(kernel).isEqualTo(rounds);
      done.upload(0, new byte[WORD]);
    }
  }

  static void readAndWriteWords(GpuRank rank) throws Exception {
    int words = 100;
    Kernel kernel = TestKernels.of("sm_channel", "smReadWrite");
    SmChannel channel = channel(rank, words * 8L);
    assertThat(rank.count(kernel, 1, 1, channel, rank.rank(), words)).isEqualTo(words);
  }
}
