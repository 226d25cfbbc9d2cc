// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.channel;

import static io.fluxccl.testing.FailureAssertions.assertRefused;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.host.HostKernel;
import io.fluxccl.device.host.HostMemory;
import io.fluxccl.device.host.KernelThread;
import io.fluxccl.semaphore.SmDevice2DeviceSemaphore;
import io.fluxccl.testing.Rounds;
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.testkit.Ranks;
import io.fluxccl.testkit.TestConnection;
import io.fluxccl.transport.Transport;
import java.util.Arrays;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;

@Tag("jdk")
@Ranks(value = 2, seconds = 120, leakCheck = false)
class SmChannelTest {
  private static final int ROUNDS = Rounds.of(100, 1000);

  /**
   * One rank's end of a channel, with the packet buffer in the second half of the peer's memory.
   */
  private static final class End implements AutoCloseable {
    final TestConnection link;
    final SmDevice2DeviceSemaphore semaphore;
    final SmChannelDeviceHandle channel;

    End(LocalRank rank, long bytes) {
      link = TestConnection.to(rank, 1 - rank.rank(), 0, Transport.SHM, bytes);
      semaphore = new SmDevice2DeviceSemaphore(rank.communicator(), link.connection);
      rank.communicator().setup().join();
      channel = new SmChannel(semaphore, link.remote, link.buffer, link.buffer).deviceHandle();
    }

    @Override
    public void close() {
      semaphore.close();
      link.remote.close();
      link.local.close();
      link.buffer.close();
    }
  }

  /** One end's part in a round, run by each thread of the kernel. */
  private interface Part {
    void run(KernelThread thread, int round);
  }

  /** Rank 0 sends in even rounds and rank 1 receives; in odd rounds they swap roles. */
  private static void play(
      LocalRank rank, int threads, int rounds, DeviceBuffer data, Part send, Part receive)
      throws Exception {
    long elements = data.size() / 4;
    AtomicLong wrong = new AtomicLong();
    HostKernel kernel =
        HostKernel.of(
            "ping-pong",
            (thread, args) -> {
              for (int round = 0; round < rounds; round++) {
                boolean sends = (round & 1) == rank.rank();
                if (!sends) {
                  receive.run(thread, round);
                }
                thread.syncThreads();
                for (int i = thread.threadIdx(); i < elements; i += thread.blockDim()) {
                  int value = i ^ (round * 0x9e3779b9);
                  if (sends) {
                    HostMemory.putInt(data.address() + i * 4L, value);
                  } else if (HostMemory.getInt(data.address() + i * 4L) != value) {
                    wrong.incrementAndGet();
                  }
                }
                thread.syncThreads();
                if (sends) {
                  send.run(thread, round);
                }
              }
            });
    rank.stream()
        .launch(kernel, 1, threads, KernelArgs.NONE)
        .completion()
        .get(120, TimeUnit.SECONDS);
    assertThat(wrong).hasValue(0);
    rank.awaitAll();
  }

  /** Runs an action on one thread, after all threads have arrived. */
  private static void onOne(KernelThread thread, Runnable action) {
    thread.syncThreads();
    if (thread.threadIdx() == 0) {
      action.run();
    }
    thread.syncThreads();
  }

  @ParameterizedTest
  @CsvSource({"1,1", "1024,1", "1024,3", "1048576,1"})
  void shouldPlayPingPongByPuts(int elements, int threads, LocalRank rank) throws Exception {
    try (End end = new End(rank, elements * 4L)) {
      play(
          rank,
          threads,
          ROUNDS,
          end.link.buffer,
          (thread, round) -> {
            end.channel.put(0, 0, elements * 4L, thread.threadIdx(), thread.blockDim());
            onOne(thread, end.channel::signal);
          },
          (thread, round) -> onOne(thread, end.channel::await));
    }
  }

  @ParameterizedTest
  @CsvSource({"1,1", "1024,2", "1048576,1"})
  void shouldPlayPingPongByGets(int elements, int threads, LocalRank rank) throws Exception {
    try (End end = new End(rank, elements * 4L)) {
      play(
          rank,
          threads,
          ROUNDS,
          end.link.buffer,
          (thread, round) ->
              onOne(
                  thread,
                  () -> {
                    end.channel.signal();
                    end.channel.await(); // the peer has received it
                  }),
          (thread, round) -> {
            onOne(thread, end.channel::await);
            end.channel.get(0, 0, elements * 4L, thread.threadIdx(), thread.blockDim());
            onOne(thread, end.channel::signal);
          });
    }
  }

  @ParameterizedTest
  @EnumSource(PacketType.class)
  void shouldPlayPingPongWithPackets(PacketType type, LocalRank rank) throws Exception {
    for (int elements : new int[] {2, 1024, 65_536}) {
      for (int threads : new int[] {1, 2}) {
        playWithPackets(type, elements * 4L, threads, rank);
      }
    }
  }

  private static void playWithPackets(PacketType type, long bytes, int threads, LocalRank rank)
      throws Exception {
    try (End end = new End(rank, 2 * bytes);
        DeviceBuffer data = rank.device().allocate(bytes)) {
      SmChannelDeviceHandle channel =
          new SmChannel(end.semaphore, end.link.remote, data, end.link.buffer).deviceHandle();
      play(
          rank,
          threads,
          bytes > 40_000 ? ROUNDS / 10 : ROUNDS,
          data,
          (thread, round) -> {
            int id = thread.threadIdx();
            if (type == PacketType.LL16) { // the default
              channel.putPackets(0, 0, bytes, id, thread.blockDim(), round + 1);
            } else {
              channel.putPackets(type, 0, 0, bytes, id, thread.blockDim(), round + 1);
            }
          },
          (thread, round) -> {
            int id = thread.threadIdx();
            assertThat(channel.getPackets(type, 0, 0, bytes, id, thread.blockDim(), round + 1))
                .isTrue();
          });
    }
  }

  @Test
  void shouldReadAndWriteSingleWordsOfThePeer(LocalRank rank) {
    try (End end = new End(rank, 64)) {
      end.channel.write(2, 100 + rank.rank());
      end.channel.signal();
      assertThat(end.channel.await()).isTrue();
      assertThat(HostMemory.getLong(end.link.buffer.address() + 16)).isEqualTo(100 + end.link.peer);
      assertThat(end.channel.read(2)).isEqualTo(100 + rank.rank());
      end.channel.writeByte(3, (byte) -rank.rank());
      end.channel.writeShort(2, (short) (300 + rank.rank()));
      end.channel.writeInt(2, 70_000 + rank.rank());
      end.channel.signal();
      assertThat(end.channel.await()).isTrue();
      long mine = end.link.buffer.address();
      assertThat(HostMemory.getInt(mine) >> 24).isEqualTo(-end.link.peer);
      assertThat(HostMemory.getInt(mine + 4) & 0xffff).isEqualTo(300 + end.link.peer);
      assertThat(HostMemory.getInt(mine + 8)).isEqualTo(70_000 + end.link.peer);
      assertThat(end.channel.readByte(3)).isEqualTo((byte) -rank.rank());
      assertThat(end.channel.readShort(2)).isEqualTo((short) (300 + rank.rank()));
      assertThat(end.channel.readInt(2)).isEqualTo(70_000 + rank.rank());
      assertRefused(() -> end.channel.readShort(32));
      end.channel.signal();
      assertThat(end.channel.await()).isTrue();
    }
  }

  @ParameterizedTest
  @ValueSource(ints = {4, 8, 16})
  void shouldCopyTheRemainderOnlyWhenAsked(int alignment, LocalRank rank) {
    try (End end = new End(rank, 256)) {
      HostMemory.fill(end.link.buffer.address(), 64, (byte) 7);
      int size = alignment * 2 + 3;
      if (rank.rank() == 0) {
        end.channel.put(alignment, false, 64, 0, size, 0, 1);
        end.channel.put(alignment, true, 128, 0, size, 0, 1);
      }
      end.channel.signal();
      end.channel.await();
      if (rank.rank() == 1) {
        byte[] expected = new byte[128];
        Arrays.fill(expected, 0, alignment * 2, (byte) 7);
        Arrays.fill(expected, 64, 64 + size, (byte) 7);
        byte[] found = new byte[128];
        end.link.buffer.download(64, found);
        assertThat(found).isEqualTo(expected);
      }
      end.channel.signal();
      end.channel.await();
    }
  }

  @Test
  void shouldRefuseRangesAlignmentsAndPacketSizes(LocalRank rank) {
    try (End end = new End(rank, 64)) {
      SmChannelDeviceHandle channel = end.channel;
      assertRefused(() -> channel.put(60, 0, 8, 0, 1), "64 bytes");
      assertRefused(() -> channel.get(0, -4, 8, 0, 1));
      assertThatThrownBy(() -> channel.put(2, true, 0, 0, 8, 0, 1))
          .hasMessageContaining("4, 8 or 16");
      assertThatThrownBy(() -> channel.putPackets(PacketType.LL16, 0, 0, 12, 0, 1, 1))
          .hasMessageContaining("multiple");
      assertRefused(() -> channel.putPackets(PacketType.LL8, 0, 0, 64, 0, 1, 1));
      assertRefused(() -> channel.read(8));
    }
  }
}
