// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.host;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import com.sun.management.ThreadMXBean;
import io.fluxccl.Aborted;
import io.fluxccl.DataType;
import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.fluxccl.ReduceOp;
import io.fluxccl.Timeout;
import io.fluxccl.collective.Collective;
import io.fluxccl.collective.CollectiveCall;
import io.fluxccl.collective.Collectives;
import io.fluxccl.collective.CollectivesOptions;
import io.fluxccl.collective.Pipeline;
import io.fluxccl.collective.Registration;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.host.HostKernel;
import io.fluxccl.device.host.HostMemory;
import io.fluxccl.testing.Rounds;
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.testkit.LocalRanks;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;

/** Properties of the host kernels besides correct results. */
class HostKernelsTest {
  private static final Duration LONG = Duration.ofSeconds(120);
  private static final int BYTES = 1 << 20;

  private static Collectives create(LocalRank rank, Duration timeout, int threads) {
    return Collectives.create(
            rank.communicator(),
            CollectivesOptions.DEFAULT
                .withTimeout(timeout)
                .withSetupTimeout(LONG)
                .withThreads(threads))
        .join();
  }

  /** Returns a call of any kind on the first bytes of two buffers. */
  private static CollectiveCall call(
      Collective which, DeviceBuffer x, DeviceBuffer y, int bytes, int rank, int nRanks) {
    DataType type = DataType.INT32;
    ReduceOp op = ReduceOp.SUM;
    int n = bytes / 4;
    int part = n / nRanks;
    long[] counts = new long[nRanks];
    Arrays.fill(counts, part);
    return switch (which) {
      case ALL_REDUCE -> CollectiveCall.allReduce(x, y, n, type, op);
      case ALL_GATHER -> CollectiveCall.allGather(x, y, part, type);
      case REDUCE_SCATTER -> CollectiveCall.reduceScatter(x, y, part, type, op);
      case BROADCAST -> CollectiveCall.broadcast(x, y, n, type, 1);
      case REDUCE -> CollectiveCall.reduce(x, y, n, type, op, 1);
      case ALL_TO_ALL -> CollectiveCall.allToAll(x, y, part, type);
      case ALL_TO_ALL_V -> CollectiveCall.allToAllv(x, counts, y, counts, type);
      case GATHER -> CollectiveCall.gather(x, y, part, type, 1);
      case SCATTER -> CollectiveCall.scatter(x, y, part, type, 1);
      case SEND_RECEIVE ->
          CollectiveCall.sendReceive(
              x, n, (rank + 1) % nRanks, y, n, (rank + nRanks - 1) % nRanks, type);
      case FUSED_ALL_REDUCE -> throw new IllegalArgumentException("has rows");
      case BARRIER -> CollectiveCall.barrier();
      case DISPATCH, COMBINE -> throw new IllegalArgumentException("has tests of its own");
    };
  }

  @Tag("alone")
  @Test
  void shouldAllocateNothingWhileKernelsRun() {
    ThreadMXBean threads = (ThreadMXBean) ManagementFactory.getThreadMXBean();
    try (LocalRanks ranks = LocalRanks.of(2)) {
      ranks.run(
          LONG,
          rank -> {
            long[] allocated = new long[2];
            HostKernel look =
                HostKernel.of(
                    "look",
                    (thread, args) ->
                        allocated[args.getInt(0)] =
                            threads.getThreadAllocatedBytes(Thread.currentThread().getId()));
            try (DeviceBuffer memory = rank.device().allocate(2 * BYTES);
                Collectives collectives = create(rank, LONG, 1);
                Registration registration = collectives.register(memory).join()) {
              DeviceBuffer x = memory.slice(0, BYTES);
              DeviceBuffer y = memory.slice(BYTES, BYTES);
              Pipeline all = collectives.pipeline();
              for (Collective which : Collective.plain()) {
                for (int bytes : new int[] {512, 40_000, BYTES}) {
                  all = all.then(call(which, x, y, bytes, rank.rank(), 2));
                }
              }
              Pipeline measured =
                  collectives
                      .pipeline()
                      .launch(look, 1, 1, KernelArgs.of(0))
                      .then(CollectiveCall.barrier());
              for (int i = 0; i < 20; i++) {
                for (Collective which : Collective.plain()) {
                  measured = measured.then(call(which, x, y, 8 << (i % 18), rank.rank(), 2));
                }
              }
              measured = measured.launch(look, 1, 1, KernelArgs.of(1));
              all.run().block(LONG);
              long least = Long.MAX_VALUE;
              // The first use and the bean itself allocate once; a long wait may allocate, too.
              for (int i = 0; i < 5 || i < 50 && least >= 1000; i++) {
                measured.run().block(LONG);
                least = Math.min(least, allocated[1] - allocated[0]);
              }
              // 221 kernels: an object in each would be 3536 bytes at least.
              assertThat(least).isLessThan(1000);
              assertThat(registration.id()).isZero();
            }
          });
    }
  }

  @ParameterizedTest
  @CsvSource({"FLOAT32,true", "FLOAT32,false", "BFLOAT16,true", "FLOAT8_E5M2,false"})
  void shouldProduceIdenticalBitsOnEveryRankAndRun(DataType type, boolean registered) {
    try (LocalRanks ranks = LocalRanks.of(3)) {
      ranks.run(
          LONG,
          rank -> {
            byte[] values = new byte[200_000 / 8 * 8];
            new Random(rank.rank()).nextBytes(values);
            for (int i = 0; i < values.length; i++) {
              values[i] &= (byte) 0xbf; // no NaN, no infinity
            }
            try (DeviceBuffer in = rank.device().allocate(values.length);
                DeviceBuffer out = rank.device().allocate(values.length);
                Collectives collectives = create(rank, LONG, 2)) {
              if (registered) {
                collectives.register(in).join();
                collectives.register(out).join();
              }
              in.upload(0, values);
              byte[] first = null;
              for (int i = 0; i < 3; i++) {
                long count = values.length / type.size();
                collectives.allReduce(in, out, count, type, ReduceOp.SUM).block(LONG);
                byte[] result = new byte[values.length];
                out.download(0, result);
                assertThat(first == null || Arrays.equals(first, result)).isTrue();
                first = result;
                collectives.barrier().block(LONG);
              }
              byte[] mine = first;
              List<byte[]> all =
                  rank.bootstrap().allGather(mine, Deadline.after(LONG)).get(60, TimeUnit.SECONDS);
              assertThat(all).allSatisfy(r -> assertThat(Arrays.equals(r, mine)).isTrue());
            }
          });
    }
  }

  /** Large calls on registered memory with several threads: every wait must end. */
  @ParameterizedTest
  @EnumSource(
      mode = EnumSource.Mode.EXCLUDE,
      names = {"FUSED_ALL_REDUCE", "DISPATCH", "COMBINE"})
  void shouldNameTheMissingRankIfACallTimesOut(Collective which) {
    try (LocalRanks ranks = LocalRanks.of(2)) {
      ranks.run(
          LONG,
          rank -> {
            DeviceBuffer memory = rank.device().allocate(2 * BYTES);
            DeviceBuffer x = memory.slice(0, BYTES);
            DeviceBuffer y = memory.slice(BYTES, BYTES);
            Collectives collectives =
                create(rank, rank.rank() == 0 ? Duration.ofMillis(Rounds.of(250, 1500)) : LONG, 2);
            collectives.register(memory).join();
            rank.awaitAll();
            if (rank.rank() == 0) {
              assertThatThrownBy(() -> collectives.run(call(which, x, y, BYTES, 0, 2)).block(LONG))
                  .isInstanceOf(Timeout.class)
                  .hasMessageContaining("rank 1");
            }
            assertThat(rank.communicator().failed().get(60, TimeUnit.SECONDS))
                .isInstanceOf(Timeout.class);
          });
    }
  }

  @Test
  void shouldLeaveThePeersMemoryAloneAfterGivingUp() {
    try (LocalRanks ranks = LocalRanks.of(2)) {
      ranks.run(
          LONG,
          rank -> {
            DeviceBuffer memory = rank.device().allocate(BYTES);
            HostMemory.fill(memory.address(), BYTES, (byte) 1);
            Collectives collectives = create(rank, Duration.ofMillis(250), 1);
            collectives.register(memory).join();
            rank.awaitAll();
            if (rank.rank() == 0) {
              assertThatThrownBy(
                      () -> collectives.allReduce(memory, DataType.INT8, ReduceOp.SUM).block(LONG))
                  .isInstanceOf(Timeout.class);
            }
            rank.communicator().failed().get(60, TimeUnit.SECONDS);
            collectives.stream().completion().handle((d, f) -> null).get(60, TimeUnit.SECONDS);
            for (int i = 0; i < BYTES; i += 8) {
              assertThat(HostMemory.getLong(memory.address() + i)).isEqualTo(0x0101010101010101L);
            }
          });
    }
  }

  @Test
  void shouldEndOnAllRanksWhenOneCancelsAmongManyInFlight() {
    try (LocalRanks ranks = LocalRanks.of(3)) {
      ranks.run(
          LONG,
          rank -> {
            DeviceBuffer memory = rank.device().allocate(2 * BYTES);
            DeviceBuffer x = memory.slice(0, BYTES);
            DeviceBuffer y = memory.slice(BYTES, BYTES);
            CollectivesOptions options =
                CollectivesOptions.DEFAULT.withTimeout(LONG).withThreads(1).withAbortOnCancel(true);
            Collectives collectives = Collectives.create(rank.communicator(), options).join();
            rank.awaitAll();
            CompletableFuture<Void> last = null;
            for (int i = 0; i < 200; i++) {
              Collective which = Collective.plain().get(i % Collective.plain().size());
              CompletableFuture<Void> done =
                  collectives.run(call(which, x, y, BYTES, rank.rank(), 3)).toFuture();
              if (rank.rank() == 1 && i == 150) {
                done.cancel(true);
              }
              last = done;
              if (rank.communicator().failure() != null) {
                break;
              }
            }
            FluxCclException reason = rank.communicator().failed().get(60, TimeUnit.SECONDS);
            assertThat(reason).isInstanceOf(Aborted.class).hasMessageContaining("rank 1");
            assertThat(last).failsWithin(LONG);
          });
    }
  }

  /** Enqueueing must not fix any state that changes between runs. */
  @Test
  void shouldRunOnePipelineAgainAndAgain() {
    try (LocalRanks ranks = LocalRanks.of(3)) {
      ranks.run(
          LONG,
          rank -> {
            int count = 50_000;
            try (DeviceBuffer sum = rank.device().allocate(count * 4L);
                Collectives collectives = create(rank, LONG, 1)) {
              Pipeline pipeline =
                  collectives
                      .pipeline()
                      .allReduce(sum, DataType.INT32, ReduceOp.SUM)
                      .then(CollectiveCall.broadcast(sum, sum, 100, DataType.INT32, 2))
                      .then(CollectiveCall.barrier());
              ByteBuffer ones = ByteBuffer.allocateDirect(count * 4).order(ByteOrder.nativeOrder());
              while (ones.hasRemaining()) {
                ones.putInt(1);
              }
              sum.upload(0, ones.flip());
              int expected = 1;
              for (int i = 0; i < 40; i++) {
                pipeline.run().block(LONG);
                expected *= 3;
                assertThat(HostMemory.getInt(sum.address())).isEqualTo(expected);
                assertThat(HostMemory.getInt(sum.address() + (count - 1) * 4L)).isEqualTo(expected);
              }
            }
          });
    }
  }
}
