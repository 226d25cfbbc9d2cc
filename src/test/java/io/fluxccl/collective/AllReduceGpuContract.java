package io.fluxccl.collective;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.Aborted;
import io.fluxccl.DataType;
import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.fluxccl.ReduceOp;
import io.fluxccl.Timeout;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.host.HostReduction;
import io.fluxccl.testing.EmulatedGpus;
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.testkit.LocalRanks;
import io.fluxccl.transport.Transport;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.time.Duration;
import java.util.Optional;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.agrona.concurrent.UnsafeBuffer;
import org.junit.jupiter.api.Test;
import reactor.core.Disposable;

/** All-reduce on GPUs, against the host's reduction, bit for bit; ranks of one JVM. */
abstract class AllReduceGpuContract {
  private static final Duration LONG = Duration.ofSeconds(100);
  private static final int GUARD = 64;

  /** Sizes on both sides of every choice, odd ones, one in the middle of a word. */
  private static final int[] COUNTS = {1, 3, 1023, 4096, 4097, 65_537, 262_145};

  private static final int LARGE = 1 << 20;

  abstract int nRanks();

  abstract LocalRanks ranks();

  /** As {@link #ranks()}, on two pretended hosts. */
  abstract LocalRanks twoHosts();

  private static AllReduce prepare(
      LocalRank rank, DeviceBuffer buffer, Optional<Transport> transport) {
    AllReduceOptions options = AllReduceOptions.DEFAULT.withTimeout(Duration.ofSeconds(20));
    return AllReduce.prepare(
            rank.communicator(),
            rank.stream(),
            buffer,
            transport.map(options::withTransport).orElse(options))
        .join();
  }

  @Test
  void shouldReduceAllTypesByAllOperationsOnMappedMemory() {
    try (LocalRanks ranks = ranks()) {
      ranks.run(LONG, rank -> checkAll(rank, Optional.empty(), "direct", true));
    }
  }

  @Test
  void shouldReduceAllTypesOverSockets() {
    try (LocalRanks ranks = ranks()) {
      ranks.run(LONG, rank -> checkAll(rank, Optional.of(Transport.ETHERNET), "all-pairs", false));
    }
  }

  @Test
  void shouldReduceBetweenPretendedHosts() {
    try (LocalRanks ranks = twoHosts()) {
      ranks.run(LONG, rank -> checkAll(rank, Optional.empty(), "all-pairs", false));
    }
  }

  private static void checkAll(
      LocalRank rank, Optional<Transport> transport, String algorithm, boolean allOps) {
    try (DeviceBuffer buffer = rank.device().allocate(LARGE * 8L + GUARD);
        AllReduce allReduce = prepare(rank, buffer, transport)) {
      assertThat(allReduce.algorithm()).isEqualTo(algorithm);
      int turn = 0;
      for (DataType type : DataType.values()) {
        if (type.name().startsWith("FLOAT8")) {
          continue; // through Collectives only
        }
        for (ReduceOp op : ReduceOp.values()) {
          for (int count : COUNTS) {
            // Over sockets every type and every operation, but not every pair of them.
            if (allOps || (turn++ % 7) == op.ordinal()) {
              check(rank, buffer, allReduce, type, op, count);
            }
          }
        }
      }
      check(rank, buffer, allReduce, DataType.BFLOAT16, ReduceOp.AVG, LARGE);
      check(rank, buffer, allReduce, DataType.FLOAT64, ReduceOp.SUM, LARGE);
      rank.bootstrap().barrier(Deadline.after(LONG)).join();
    }
  }

  private static void check(
      LocalRank rank,
      DeviceBuffer buffer,
      AllReduce allReduce,
      DataType type,
      ReduceOp op,
      int count) {
    int bytes = count * type.size();
    ByteBuffer in = input(rank.rank(), type, op, bytes);
    while (in.position() < bytes + GUARD) {
      in.put((byte) 0x5a);
    }
    buffer.upload(0, in.flip());
    allReduce.run(count, type, op).block(LONG);
    ByteBuffer out = direct(bytes + GUARD);
    buffer.download(0, out);
    out.flip();
    ByteBuffer expected = expected(rank.nRanks(), type, op, count);
    expected.limit(bytes);
    int mismatch = out.slice(0, bytes).mismatch(expected);
    assertThat(mismatch)
        .as("%s of %d %s on rank %d: first wrong byte", op, count, type, rank.rank())
        .isEqualTo(-1);
    for (int i = bytes; i < bytes + GUARD; i++) {
      assertThat(out.get(i)).as("behind the end").isEqualTo((byte) 0x5a);
    }
  }

  private static ByteBuffer direct(int size) {
    return ByteBuffer.allocateDirect(size).order(ByteOrder.LITTLE_ENDIAN);
  }

  /** Any bits for integers; for floating-point numbers finite ones of which none is a NaN. */
  private static ByteBuffer input(int rank, DataType type, ReduceOp op, int bytes) {
    Random random = new Random(rank * 31L + type.ordinal() * 7L + op.ordinal());
    ByteBuffer values = direct(bytes + GUARD);
    while (values.position() < bytes) {
      switch (type) {
        case FLOAT32 -> values.putFloat(random.nextFloat() - 0.5f);
        case FLOAT64 -> values.putDouble(random.nextDouble() - 0.5);
        // Exponents around 1, all signs and fractions.
        case FLOAT16 -> values.putShort((short) (random.nextInt() & 0x83ff | 0x3800));
        case BFLOAT16 -> values.putShort((short) (random.nextInt() & 0x807f | 0x3f00));
        default -> values.put((byte) random.nextInt());
      }
    }
    return values;
  }

  private static ByteBuffer expected(int nRanks, DataType type, ReduceOp op, int count) {
    ByteBuffer[] inputs = new ByteBuffer[nRanks];
    long[] sources = new long[nRanks];
    for (int rank = 0; rank < nRanks; rank++) {
      inputs[rank] = input(rank, type, op, count * type.size());
      sources[rank] = new UnsafeBuffer(inputs[rank].clear()).addressOffset();
    }
    ByteBuffer result = direct(count * type.size());
    long[] targets = {new UnsafeBuffer(result).addressOffset()};
    new HostReduction().reduce(type, op, sources, nRanks, targets, 1, count, nRanks);
    // The garbage collector must leave the sources alone until here.
    java.lang.ref.Reference.reachabilityFence(inputs);
    return result;
  }

  @Test
  void shouldReduceASliceThatBeginsAnywhere() {
    try (LocalRanks ranks = ranks()) {
      ranks.run(
          LONG,
          rank -> {
            try (DeviceBuffer whole = rank.device().allocate(LARGE)) {
              // Each rank's begins elsewhere.
              DeviceBuffer slice = whole.slice(4L * (1 + rank.rank() % 3), LARGE / 2);
              try (AllReduce allReduce = prepare(rank, slice, Optional.empty())) {
                for (int count : new int[] {1, 5, 1023, 100_001}) {
                  check(rank, slice, allReduce, DataType.INT32, ReduceOp.SUM, count);
                }
                rank.bootstrap().barrier(Deadline.after(LONG)).join();
              }
            }
          });
    }
  }

  @Test
  void shouldRunManyEnqueuedAtOnceWhoseKernelsDiffer() {
    int[] counts = {1, 600_000, 5_000, 3, 16_384, 4_097, 700_001};
    try (LocalRanks ranks = ranks()) {
      ranks.run(
          LONG,
          rank -> {
            try (DeviceBuffer buffer = rank.device().allocate(LARGE * 4L);
                AllReduce allReduce = prepare(rank, buffer, Optional.empty())) {
              buffer.upload(0, direct(4).putInt(0, 1));
              int expected = 1;
              for (int i = 0; i < 700; i++) {
                allReduce.enqueue(counts[i * 5 % 7], DataType.INT32, ReduceOp.SUM);
                expected *= rank.nRanks();
              }
              allReduce.completion().get(30, TimeUnit.SECONDS);
              ByteBuffer result = direct(4);
              buffer.download(0, result);
              assertThat(result.getInt(0)).isEqualTo(expected);
              rank.bootstrap().barrier(Deadline.after(LONG)).join();
            }
          });
    }
  }

  @Test
  void shouldKeepTwoAllReducesOnTwoStreamsApart() {
    try (LocalRanks ranks = ranks()) {
      ranks.run(
          LONG,
          rank -> {
            DeviceStream other = rank.device().createStream("other");
            try (DeviceBuffer x = rank.device().allocate(LARGE * 4L);
                DeviceBuffer y = rank.device().allocate(LARGE * 4L);
                AllReduce sum = AllReduce.prepare(rank.communicator(), rank.stream(), x).join();
                AllReduce max =
                    AllReduce.prepare(
                            rank.communicator(), other, y, AllReduceOptions.DEFAULT.withTag(1))
                        .join()) {
              x.upload(0, direct(4).putInt(0, 1));
              y.upload(0, direct(4).putInt(0, 7 + rank.rank()));
              int expected = 1;
              for (int i = 0; i < 50; i++) {
                sum.enqueue(i % 2 == 0 ? LARGE : 10, DataType.INT32, ReduceOp.SUM);
                max.enqueue(i % 3 == 0 ? LARGE : 9_000, DataType.INT32, ReduceOp.MAX);
                expected *= rank.nRanks();
              }
              sum.completion().get(30, TimeUnit.SECONDS);
              max.completion().get(30, TimeUnit.SECONDS);
              ByteBuffer result = direct(4);
              x.download(0, result);
              assertThat(result.getInt(0)).isEqualTo(expected);
              y.download(0, result.clear());
              assertThat(result.getInt(0)).isEqualTo(6 + rank.nRanks());
              rank.bootstrap().barrier(Deadline.after(LONG)).join();
            }
          });
    }
  }

  @Test
  void shouldEndOnEveryRankWhenOneCancelsAndLetTheNextCommunicatorWork() {
    try (LocalRanks ranks = ranks()) {
      ranks.run(
          LONG,
          rank -> {
            try (DeviceBuffer buffer = rank.device().allocate(LARGE);
                AllReduce allReduce = prepare(rank, buffer, Optional.empty())) {
              // Not before all are prepared: what fails for them then is that.
              rank.bootstrap().barrier(Deadline.after(LONG)).join();
              if (rank.rank() == 0) {
                // In flight for ever: the others do not take part.
                Disposable run = allReduce.run(LARGE / 4, DataType.INT32, ReduceOp.SUM).subscribe();
                run.dispose();
              }
              FluxCclException reason = rank.communicator().failed().get(10, TimeUnit.SECONDS);
              assertThat(reason).isInstanceOf(Aborted.class).hasMessageContaining("rank 0");
              long start = System.nanoTime();
              CompletableFuture<Void> left = rank.stream().completion();
              left.get(20, TimeUnit.SECONDS);
              assertThat(Duration.ofNanos(System.nanoTime() - start))
                  .isLessThan(Duration.ofMillis(EmulatedGpus.HERE ? 10_000 : 500));
            }
          });
    }
    try (LocalRanks ranks = ranks()) {
      ranks.run(LONG, AllReduceGpuContract::checkOne);
    }
  }

  private static void checkOne(LocalRank rank) {
    try (DeviceBuffer buffer = rank.device().allocate(LARGE);
        AllReduce allReduce = prepare(rank, buffer, Optional.empty())) {
      check(rank, buffer, allReduce, DataType.FLOAT16, ReduceOp.SUM, 100_000);
      rank.bootstrap().barrier(Deadline.after(LONG)).join();
    }
  }

  @Test
  void shouldNameTheRankThatDoesNotTakePart() {
    try (LocalRanks ranks = ranks()) {
      int absent = nRanks() - 1;
      ranks.run(
          LONG,
          rank -> {
            try (DeviceBuffer buffer = rank.device().allocate(LARGE);
                AllReduce allReduce = prepare(rank, buffer, Optional.empty())) {
              if (rank.rank() == absent) {
                rank.communicator().failed().get(20, TimeUnit.SECONDS);
                return;
              }
              allReduce.enqueue(2_000, DataType.INT32, ReduceOp.SUM);
              assertThatThrownBy(
                      () -> allReduce.completion(Duration.ofSeconds(1)).get(10, TimeUnit.SECONDS))
                  .cause()
                  .isInstanceOf(Timeout.class)
                  .extracting(failure -> ((Timeout) failure).rank())
                  .isEqualTo(absent);
            }
          });
    }
  }
}
