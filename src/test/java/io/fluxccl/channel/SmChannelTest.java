// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.channel;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.InvalidUsage;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.host.HostKernel;
import io.fluxccl.device.host.HostMemory;
import io.fluxccl.device.host.KernelThread;
import io.fluxccl.semaphore.SmDevice2DeviceSemaphore;
import io.fluxccl.testing.Rounds;
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.testkit.LocalRanks;
import io.fluxccl.testkit.TestConnection;
import io.fluxccl.transport.Transport;
import java.time.Duration;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;

@Tag("jdk")
class SmChannelTest {
  private static final int ROUNDS = Rounds.of(100, 1000);
  private static final Duration LONG = Duration.ofSeconds(120);

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

  @ParameterizedTest
  @CsvSource({
    "1,1,put",
    "1024,1,put",
    "1024,3,put",
    "1048576,1,put",
    "1,1,get",
    "1024,2,get",
    "1048576,1,get"
  })
  void shouldPlayPingPong(int elements, int threads, String how) {
    try (LocalRanks ranks = LocalRanks.of(2)) {
      ranks.run(
          LONG,
          rank -> {
            try (End end = new End(rank, elements * 4L)) {
              AtomicLong wrong = new AtomicLong();
              HostKernel kernel =
                  HostKernel.of(
                      "ping-pong", (thread, args) -> pingPong(thread, end, elements, how, wrong));
              rank.stream()
                  .launch(kernel, 1, threads, KernelArgs.NONE)
                  .completion()
                  .get(LONG.toSeconds(), TimeUnit.SECONDS);
              assertThat(wrong).hasValue(0);
            }
          });
    }
  }

  /** Rank 0 writes in even rounds and rank 1 reads; in odd rounds they swap roles. */
  private static void pingPong(
      KernelThread thread, End end, int elements, String how, AtomicLong wrong) {
    int rank = end.link.rank.rank();
    boolean put = how.equals("put");
    for (int round = 0; round < ROUNDS; round++) {
      boolean sends = (round & 1) == rank;
      if (sends) {
        fill(end.link, elements, round, thread);
        thread.syncThreads();
        if (put) {
          end.channel.put(0, 0, elements * 4L, thread.threadIdx(), thread.blockDim());
          thread.syncThreads();
        }
        if (thread.threadIdx() == 0) {
          end.channel.signal();
          if (!put) {
            end.channel.await(); // the peer has received it
          }
        }
        thread.syncThreads();
      } else {
        if (thread.threadIdx() == 0) {
          end.channel.await();
        }
        thread.syncThreads();
        if (!put) {
          end.channel.get(0, 0, elements * 4L, thread.threadIdx(), thread.blockDim());
          thread.syncThreads();
        }
        if (thread.threadIdx() == 0) {
          wrong.addAndGet(countWrong(end.link, elements, round));
          if (!put) {
            end.channel.signal();
          }
        }
        thread.syncThreads();
      }
    }
  }

  private static void fill(TestConnection link, int elements, int round, KernelThread thread) {
    long base = link.buffer.address();
    for (int i = thread.threadIdx(); i < elements; i += thread.blockDim()) {
      HostMemory.putInt(base + i * 4L, i ^ (round * 0x9e3779b9));
    }
  }

  private static long countWrong(TestConnection link, int elements, int round) {
    long wrong = 0;
    long base = link.buffer.address();
    for (int i = 0; i < elements; i++) {
      if (HostMemory.getInt(base + i * 4L) != (i ^ (round * 0x9e3779b9))) {
        wrong++;
      }
    }
    return wrong;
  }

  @ParameterizedTest
  @EnumSource(PacketType.class)
  void shouldPlayPingPongWithPackets(PacketType type) {
    for (int elements : new int[] {2, 1024, 65_536}) {
      for (int threads : new int[] {1, 2}) {
        playWithPackets(type, elements, threads);
      }
    }
  }

  private static void playWithPackets(PacketType type, int elements, int threads) {
    long bytes = elements * 4L;
    int rounds = elements > 10_000 ? ROUNDS / 10 : ROUNDS;
    try (LocalRanks ranks = LocalRanks.of(2)) {
      ranks.run(
          LONG,
          rank -> {
            TestConnection link =
                TestConnection.to(rank, 1 - rank.rank(), 0, Transport.SHM, 2 * bytes);
            SmDevice2DeviceSemaphore semaphore =
                new SmDevice2DeviceSemaphore(rank.communicator(), link.connection);
            rank.communicator().setup().join();
            DeviceBuffer data = rank.device().allocate(bytes);
            SmChannelDeviceHandle channel =
                new SmChannel(semaphore, link.remote, data, link.buffer).deviceHandle();
            AtomicLong wrong = new AtomicLong();
            HostKernel kernel =
                HostKernel.of(
                    "packets",
                    (thread, args) -> {
                      int id = thread.threadIdx();
                      int n = thread.blockDim();
                      for (int round = 0; round < rounds; round++) {
                        int flag = round + 1;
                        if ((round & 1) == rank.rank()) {
                          for (int i = id; i < elements; i += n) {
                            HostMemory.putInt(data.address() + i * 4L, i + round * 31);
                          }
                          thread.syncThreads();
                          if (type == PacketType.LL16) {
                            channel.putPackets(0, 0, bytes, id, n, flag); // the default
                          } else {
                            channel.putPackets(type, 0, 0, bytes, id, n, flag);
                          }
                        } else {
                          assertThat(channel.getPackets(type, 0, 0, bytes, id, n, flag)).isTrue();
                          thread.syncThreads();
                          for (int i = id; i < elements; i += n) {
                            if (HostMemory.getInt(data.address() + i * 4L) != i + round * 31) {
                              wrong.incrementAndGet();
                            }
                          }
                        }
                        thread.syncThreads();
                      }
                    });
            rank.stream()
                .launch(kernel, 1, threads, KernelArgs.NONE)
                .completion()
                .get(LONG.toSeconds(), TimeUnit.SECONDS);
            assertThat(wrong).hasValue(0);
            semaphore.close();
          });
    }
  }

  @Test
  void shouldReadAndWriteSingleWordsOfThePeer() {
    try (LocalRanks ranks = LocalRanks.of(2)) {
      ranks.run(
          rank -> {
            try (End end = new End(rank, 64)) {
              end.channel.write(2, 100 + rank.rank());
              end.channel.signal();
              assertThat(end.channel.await()).isTrue();
              assertThat(HostMemory.getLong(end.link.buffer.address() + 16))
                  .isEqualTo(100 + end.link.peer);
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
              assertThatThrownBy(() -> end.channel.readShort(32)).isInstanceOf(InvalidUsage.class);
              end.channel.signal();
              assertThat(end.channel.await()).isTrue();
            }
          });
    }
  }

  @ParameterizedTest
  @ValueSource(ints = {4, 8, 16})
  void shouldCopyTheRemainderOnlyWhenAsked(int alignment) {
    try (LocalRanks ranks = LocalRanks.of(2)) {
      ranks.run(
          rank -> {
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
                assertThat(countBytes(end.link.buffer.address() + 64, 64)).isEqualTo(alignment * 2);
                assertThat(countBytes(end.link.buffer.address() + 128, 64)).isEqualTo(size);
              }
              end.channel.signal();
              end.channel.await();
            }
          });
    }
  }

  private static int countBytes(long address, int length) {
    int count = 0;
    for (int i = 0; i < length; i += 4) {
      for (int word = HostMemory.getInt(address + i); word != 0; word >>>= 8) {
        count += (word & 0xff) == 7 ? 1 : 0;
      }
    }
    return count;
  }

  @Test
  void shouldRefuseRangesAlignmentsAndPacketSizes() {
    try (LocalRanks ranks = LocalRanks.of(2)) {
      ranks.run(
          rank -> {
            try (End end = new End(rank, 64)) {
              SmChannelDeviceHandle channel = end.channel;
              assertThatThrownBy(() -> channel.put(60, 0, 8, 0, 1))
                  .isInstanceOf(InvalidUsage.class)
                  .hasMessageContaining("64 bytes");
              assertThatThrownBy(() -> channel.get(0, -4, 8, 0, 1))
                  .isInstanceOf(InvalidUsage.class);
              assertThatThrownBy(() -> channel.put(2, true, 0, 0, 8, 0, 1))
                  .hasMessageContaining("4, 8 or 16");
              assertThatThrownBy(() -> channel.putPackets(PacketType.LL16, 0, 0, 12, 0, 1, 1))
                  .hasMessageContaining("multiple");
              assertThatThrownBy(() -> channel.putPackets(PacketType.LL8, 0, 0, 64, 0, 1, 1))
                  .isInstanceOf(InvalidUsage.class);
              assertThatThrownBy(() -> channel.read(8)).isInstanceOf(InvalidUsage.class);
            }
          });
    }
  }
}
