package io.fluxccl.collective;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.DataType;
import io.fluxccl.Deadline;
import io.fluxccl.ReduceOp;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.host.HostMemory;
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.testkit.LocalRanks;
import io.fluxccl.transport.Transport;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;

class AllReduceValuesTest {
  private static final Duration LONG = Duration.ofSeconds(30);
  private static final int[] COUNTS = {1, 2, 7, 129, 8195};

  private static AllReduce prepare(LocalRank rank, DeviceBuffer buffer, Transport transport) {
    return AllReduce.prepare(
            rank.communicator(),
            rank.stream(),
            buffer,
            AllReduceOptions.DEFAULT.withTransport(transport).withThreads(2))
        .join();
  }

  private static ByteBuffer bytes(int size) {
    return ByteBuffer.allocateDirect(size).order(ByteOrder.LITTLE_ENDIAN);
  }

  @ParameterizedTest
  @EnumSource(names = {"SHM", "ETHERNET"})
  void shouldReduceEveryTypeByEveryOperation(Transport transport) {
    try (LocalRanks ranks = LocalRanks.of(3)) {
      ranks.run(
          LONG,
          rank -> {
            try (DeviceBuffer buffer = rank.device().allocate(8195 * 8L);
                AllReduce allReduce = prepare(rank, buffer, transport)) {
              for (DataType type : DataType.values()) {
                for (ReduceOp op : ReduceOp.values()) {
                  for (int count : COUNTS) {
                    checkOne(rank, buffer, allReduce, type, op, count);
                  }
                }
              }
            }
          });
    }
  }

  private static void checkOne(
      LocalRank rank,
      DeviceBuffer buffer,
      AllReduce allReduce,
      DataType type,
      ReduceOp op,
      int count) {
    int n = rank.nRanks();
    ByteBuffer values = bytes(count * type.size());
    for (int i = 0; i < count; i++) {
      ExactElements.put(values, type, i, ExactElements.input(type, op, rank.rank(), n, i));
    }
    buffer.upload(0, values);
    allReduce.run(count, type, op).block(LONG);
    values.clear();
    buffer.download(0, values);
    for (int i = 0; i < count; i++) {
      BigInteger expected = ExactElements.expected(type, op, n, i);
      if (ExactElements.get(values, type, i) != expected.longValueExact()) {
        assertThat(ExactElements.get(values, type, i))
            .as("%s of %s, element %d of %d on rank %d", op, type, i, count, rank.rank())
            .isEqualTo(expected.longValueExact());
      }
    }
  }

  @ParameterizedTest
  @CsvSource({"SHM,FLOAT32", "SHM,BFLOAT16", "ETHERNET,FLOAT32", "ETHERNET,FLOAT16"})
  void shouldGiveTheSameBitsOnEveryRank(Transport transport, DataType type) {
    int count = 10_007;
    try (LocalRanks ranks = LocalRanks.of(3)) {
      ranks.run(
          LONG,
          rank -> {
            try (DeviceBuffer buffer = rank.device().allocate((long) count * type.size());
                AllReduce allReduce = prepare(rank, buffer, transport)) {
              Random random = new Random(rank.rank());
              for (int round : new int[] {count, 1000, count}) {
                ByteBuffer values = bytes(round * type.size());
                while (values.hasRemaining()) {
                  values.put((byte) (random.nextInt(256) & 0xbf)); // no NaN, no infinity
                }
                buffer.upload(0, values.flip());
                allReduce.run(round, type, ReduceOp.SUM).block(LONG);
                values.clear();
                buffer.download(0, values);
                byte[] result = new byte[values.capacity()];
                values.flip().get(result);
                List<byte[]> all =
                    rank.bootstrap()
                        .allGather(result, Deadline.after(LONG))
                        .get(30, TimeUnit.SECONDS);
                assertThat(all).allSatisfy(r -> assertThat(Arrays.equals(r, result)).isTrue());
              }
            }
          });
    }
  }

  @ParameterizedTest
  @EnumSource(names = {"SHM", "ETHERNET"})
  void shouldReduceFewerElementsThanThereAreRanks(Transport transport) {
    try (LocalRanks ranks = LocalRanks.of(5)) {
      ranks.run(
          LONG,
          rank -> {
            try (DeviceBuffer buffer = rank.device().allocate(3);
                AllReduce allReduce = prepare(rank, buffer, transport)) {
              for (int count = 1; count <= 3; count++) {
                checkOne(rank, buffer, allReduce, DataType.INT8, ReduceOp.SUM, count);
              }
            }
          });
    }
  }

  @Test
  void shouldReduceInTwoPhasesWhatLeavesSomeRanksWithoutAChunk() {
    // One line over the limit of the one shot: the last of so many ranks have nothing to reduce.
    int count = DirectAllReduce.ONE_SHOT_LIMIT + 1;
    try (LocalRanks ranks = LocalRanks.of(7)) {
      ranks.run(
          LONG,
          rank -> {
            try (DeviceBuffer buffer = rank.device().allocate(count);
                AllReduce allReduce = prepare(rank, buffer, Transport.SHM)) {
              checkOne(rank, buffer, allReduce, DataType.INT8, ReduceOp.MAX, count);
              checkOne(rank, buffer, allReduce, DataType.INT8, ReduceOp.MAX, count - 1);
              checkOne(rank, buffer, allReduce, DataType.INT8, ReduceOp.MAX, count);
            }
          });
    }
  }

  @ParameterizedTest
  @CsvSource({"SHM,1", "SHM,2", "ETHERNET,1", "ETHERNET,2"})
  void shouldKeepTwoAllReducesApart(Transport transport, int streams) {
    int words = 4096;
    try (LocalRanks ranks = LocalRanks.of(2)) {
      ranks.run(
          LONG,
          rank -> {
            AllReduceOptions options = AllReduceOptions.DEFAULT.withTransport(transport);
            DeviceStream second = streams == 1 ? rank.stream() : rank.device().createStream("b");
            try (DeviceBuffer x = rank.device().allocate(words * 4L);
                DeviceBuffer y = rank.device().allocate(words * 4L);
                AllReduce sum =
                    AllReduce.prepare(rank.communicator(), rank.stream(), x, options).join();
                AllReduce max =
                    AllReduce.prepare(rank.communicator(), second, y, options.withTag(1)).join()) {
              HostMemory.putInt(x.address() + 8, 1);
              HostMemory.putInt(y.address() + 8, 5 + rank.rank());
              for (int i = 0; i < 20; i++) {
                // One shot and two phases take turns.
                sum.enqueue(i % 3 == 0 ? words : 16, DataType.INT32, ReduceOp.SUM);
                max.enqueue(i % 2 == 0 ? words : 16, DataType.INT32, ReduceOp.MAX);
              }
              sum.completion().get(20, TimeUnit.SECONDS);
              max.completion().get(20, TimeUnit.SECONDS);
              assertThat(HostMemory.getInt(x.address() + 8)).isEqualTo(1 << 20);
              assertThat(HostMemory.getInt(y.address() + 8)).isEqualTo(6);
            }
          });
    }
  }
}
