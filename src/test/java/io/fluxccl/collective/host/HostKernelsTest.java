// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.host;

import static io.fluxccl.DataType.INT32;
import static io.fluxccl.ReduceOp.SUM;
import static io.fluxccl.testing.OnRanks.Runner.lane;
import static io.fluxccl.testing.Outcomes.fails;
import static org.assertj.core.api.Assertions.assertThat;

import com.sun.management.ThreadMXBean;
import io.fluxccl.DataType;
import io.fluxccl.Deadline;
import io.fluxccl.Timeout;
import io.fluxccl.collective.CallShape;
import io.fluxccl.collective.Collective;
import io.fluxccl.collective.CollectiveCall;
import io.fluxccl.collective.Collectives;
import io.fluxccl.collective.CollectivesOptions;
import io.fluxccl.collective.Pipeline;
import io.fluxccl.collective.Registration;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.host.HostKernel;
import io.fluxccl.testing.Bytes;
import io.fluxccl.testing.OnRanks;
import io.fluxccl.testkit.LocalRank;
import java.lang.management.ManagementFactory;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;

/** Properties of the host kernels besides correct results. */
@OnRanks(seconds = 120)
class HostKernelsTest {
  private static final Duration LONG = Duration.ofSeconds(120);
  private static final int BYTES = 1 << 20;

  private static Collectives create(LocalRank rank, Duration timeout, int threads) {
    return lane(
        rank,
        CollectivesOptions.DEFAULT
            .withTimeout(timeout)
            .withSetupTimeout(LONG)
            .withThreads(threads));
  }

  /** Returns a call of any kind on the first bytes of two buffers. */
  private static CollectiveCall call(
      Collective which, DeviceBuffer x, DeviceBuffer y, int bytes, int rank, int nRanks) {
    int n = bytes / 4;
    int next = (rank + 1) % nRanks;
    int last = (rank + nRanks - 1) % nRanks;
    long[] counts = new long[nRanks];
    Arrays.fill(counts, n / nRanks);
    return switch (which) {
      case ALL_TO_ALL_V -> CollectiveCall.allToAllv(x, counts, y, counts, INT32);
      case SEND_RECEIVE -> CollectiveCall.sendReceive(x, n, next, y, n, last, INT32);
      case ALL_REDUCE, BROADCAST, REDUCE -> new CallShape(which, n, INT32, SUM, 1).on(x, y);
      default -> new CallShape(which, n / nRanks, INT32, SUM, 1).on(x, y);
    };
  }

  @Tag("alone")
  @Test
  void shouldAllocateNothingWhileKernelsRun(LocalRank rank) {
    ThreadMXBean threads = (ThreadMXBean) ManagementFactory.getThreadMXBean();
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
      Pipeline measured = collectives.pipeline().launch(look, 1, 1, KernelArgs.of(0)).barrier();
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
  }

  @ParameterizedTest
  @CsvSource({"FLOAT32,true", "FLOAT32,false", "BFLOAT16,true", "FLOAT8_E5M2,false"})
  @OnRanks(3)
  void shouldProduceIdenticalBitsOnEveryRankAndRun(
      DataType type, boolean registered, LocalRank rank) throws Exception {
    byte[] values = Bytes.random(rank.rank(), 200_000 / 8 * 8);
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
        collectives.allReduce(in, out, count, type, SUM).block(LONG);
        byte[] result = Bytes.of(out);
        assertThat(first == null || Arrays.equals(first, result)).isTrue();
        first = result;
        collectives.barrier().block(LONG);
      }
      byte[] mine = first;
      List<byte[]> all =
          rank.bootstrap().allGather(mine, Deadline.after(LONG)).get(60, TimeUnit.SECONDS);
      assertThat(all).allSatisfy(r -> assertThat(Arrays.equals(r, mine)).isTrue());
    }
  }

  /** Large calls on registered memory with several threads: every wait must end. */
  @ParameterizedTest
  @EnumSource(
      mode = EnumSource.Mode.EXCLUDE,
      names = {"FUSED_ALL_REDUCE", "DISPATCH", "COMBINE"})
  void shouldNameTheMissingRankIfACallTimesOut(Collective which, LocalRank rank) throws Exception {
    DeviceBuffer memory = rank.device().allocate(2 * BYTES);
    DeviceBuffer x = memory.slice(0, BYTES);
    DeviceBuffer y = memory.slice(BYTES, BYTES);
    Collectives collectives = create(rank, rank.rank() == 0 ? Duration.ofMillis(1500) : LONG, 2);
    collectives.register(memory).join();
    rank.awaitAll();
    if (rank.rank() == 0) {
      fails(collectives.run(call(which, x, y, BYTES, 0, 2)), Timeout.class, "rank 1");
    }
    assertThat(rank.communicator().failed().get(60, TimeUnit.SECONDS)).isInstanceOf(Timeout.class);
  }
}
