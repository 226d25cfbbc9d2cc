// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import static io.fluxccl.ReduceOp.SUM;
import static io.fluxccl.testing.Outcomes.refuses;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.DataType;
import io.fluxccl.ReduceOp;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.host.HostDevice;
import org.assertj.core.api.ThrowableAssert.ThrowingCallable;
import org.junit.jupiter.api.Test;

/** Sizes that overflow. */
class CollectiveCallTest {
  private static final DataType F64 = DataType.FLOAT64;
  private static final DataType I8 = DataType.INT8;

  private static void shouldBeTooLarge(ThrowingCallable call, String collective) {
    refuses(call, collective, "more bytes than there can be");
  }

  @Test
  void shouldRefuseCountsIfTheirSizeInBytesOverflows() {
    for (long n : new long[] {1L << 60, 1L << 61, 1L << 62, Long.MAX_VALUE}) {
      ReduceOp sum = SUM;
      shouldBeTooLarge(() -> CollectiveCall.allReduce(null, null, n, F64, sum), "all-reduce");
      shouldBeTooLarge(() -> CollectiveCall.reduce(null, null, n, F64, sum, 0), "reduce");
      shouldBeTooLarge(
          () -> CollectiveCall.reduceScatter(null, null, n, F64, sum), "reduce-scatter");
      shouldBeTooLarge(() -> CollectiveCall.allGather(null, null, n, F64), "all-gather");
      shouldBeTooLarge(() -> CollectiveCall.allToAll(null, null, n, F64), "all-to-all");
      shouldBeTooLarge(() -> CollectiveCall.broadcast(null, null, n, F64, 0), "broadcast");
      shouldBeTooLarge(() -> CollectiveCall.gather(null, null, n, F64, 0), "gather");
      shouldBeTooLarge(() -> CollectiveCall.scatter(null, null, n, F64, 0), "scatter");
      shouldBeTooLarge(
          () -> CollectiveCall.sendReceive(null, n, 1, null, 0, 1, F64), "send-receive");
      shouldBeTooLarge(
          () -> CollectiveCall.sendReceive(null, 0, 1, null, n, 1, F64), "send-receive");
    }
    long most = Long.MAX_VALUE / 8;
    assertThat(CollectiveCall.allGather(null, null, most, F64).countBytes()).isEqualTo(8 * most);
  }

  @Test
  void shouldRefuseASendReceiveWithACountAndNoPeer() {
    int none = CollectiveCall.NO_PEER;
    refuses(
        () -> CollectiveCall.sendReceive(null, 5, none, null, 0, none, F64),
        "sendCount=5 destination=-1");
    refuses(
        () -> CollectiveCall.sendReceive(null, 5, 1, null, 3, none, F64),
        "receiveCount=3 source=-1");
    assertThat(CollectiveCall.sendReceive(null, 0, none, null, 0, none, F64).count()).isZero();
  }

  @Test
  void shouldRefuseCountsIfTheirSumOverflows() {
    for (long n : new long[] {1L << 61, 1L << 62, (1L << 62) + 1, Long.MAX_VALUE}) {
      long[] large = {n, n, n, n};
      long[] small = {1, 1, 1, 1};
      shouldBeTooLarge(
          () -> CollectiveCall.allToAllv(null, large, null, small, I8), "all-to-all-v");
      shouldBeTooLarge(
          () -> CollectiveCall.allToAllv(null, small, null, large, I8), "all-to-all-v");
    }
    long[] eighths = {1L << 59, 1L << 59};
    shouldBeTooLarge(
        () -> CollectiveCall.allToAllv(null, eighths, null, eighths, F64), "all-to-all-v");
    CollectiveCall fits = CollectiveCall.allToAllv(null, eighths, null, eighths, I8);
    assertThat(fits.inputBytes(0, 2)).isEqualTo(1L << 60);
  }

  @Test
  void shouldShareNoMemoryWithABufferThatIsNotUsed() {
    try (HostDevice device = HostDevice.create();
        DeviceBuffer memory = device.allocate(64)) {
      DeviceBuffer within = memory.slice(16, 16);
      CollectiveCall broadcast = CollectiveCall.broadcast(within, memory, 64, I8, 0);
      assertThat(broadcast.isInPlace(0, 2)).isTrue();
      assertThat(broadcast.isInPlace(1, 2)).isFalse();
      CollectiveCall reduce = CollectiveCall.reduce(memory, within, 64, I8, SUM, 0);
      assertThat(reduce.isInPlace(0, 2)).isTrue();
      assertThat(reduce.isInPlace(1, 2)).isFalse();
      long[] none = {0, 0};
      long[] some = {8, 24};
      assertThat(CollectiveCall.allToAllv(within, none, memory, some, I8).isInPlace(0, 2))
          .isFalse();
      assertThat(CollectiveCall.allToAllv(memory, some, within, none, I8).isInPlace(0, 2))
          .isFalse();
      assertThat(CollectiveCall.allToAllv(memory, some, within, some, I8).isInPlace(0, 2)).isTrue();
    }
  }

  @Test
  void shouldRefuseSharesIfTheirTotalSizeOverflows() {
    for (int nRanks : new int[] {2, 3, 4, 5}) {
      long n = 1L << 62;
      CollectiveCall allGather = CollectiveCall.allGather(null, null, n, I8);
      shouldBeTooLarge(() -> allGather.outputBytes(1, nRanks), "all-gather");
      shouldBeTooLarge(() -> allGather.totalBytes(nRanks), "all-gather");
      CollectiveCall reduceScatter = CollectiveCall.reduceScatter(null, null, n, I8, SUM);
      shouldBeTooLarge(() -> reduceScatter.inputBytes(1, nRanks), "reduce-scatter");
      CollectiveCall allToAll = CollectiveCall.allToAll(null, null, n, I8);
      shouldBeTooLarge(() -> allToAll.inputBytes(1, nRanks), "all-to-all");
      shouldBeTooLarge(() -> allToAll.outputBytes(1, nRanks), "all-to-all");
      CollectiveCall gather = CollectiveCall.gather(null, null, n, I8, 0);
      shouldBeTooLarge(() -> gather.outputBytes(0, nRanks), "gather");
      CollectiveCall scatter = CollectiveCall.scatter(null, null, n, I8, 0);
      shouldBeTooLarge(() -> scatter.inputBytes(0, nRanks), "scatter");
    }
  }
}
