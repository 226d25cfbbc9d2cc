// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import static io.fluxccl.ReduceOp.SUM;
import static io.fluxccl.collective.Collective.ALL_TO_ALL_V;
import static io.fluxccl.collective.Collective.BARRIER;
import static io.fluxccl.collective.Collective.SEND_RECEIVE;
import static io.fluxccl.testing.Outcomes.refuses;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.DataType;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.host.HostDevice;
import java.util.List;
import java.util.Set;
import org.assertj.core.api.ThrowableAssert.ThrowingCallable;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Sizes that overflow. */
class CollectiveCallTest {
  private static final DataType F64 = DataType.FLOAT64;
  private static final DataType I8 = DataType.INT8;
  private static final List<Collective> EVEN =
      Collective.plain().stream()
          .filter(kind -> !Set.of(BARRIER, ALL_TO_ALL_V, SEND_RECEIVE).contains(kind))
          .toList();

  private static void shouldBeTooLarge(ThrowingCallable call, String collective) {
    refuses(call, collective, "more bytes than there can be");
  }

  @Test
  void shouldRefuseCountsIfTheirSizeInBytesOverflows() {
    for (long n : new long[] {1L << 60, 1L << 61, 1L << 62, Long.MAX_VALUE}) {
      for (Collective kind : EVEN) {
        CallShape shape = new CallShape(kind, n, F64, SUM, 0);
        shouldBeTooLarge(() -> shape.on(null, null), kind.label());
      }
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

  @ParameterizedTest
  @EnumSource(names = {"ALL_GATHER", "REDUCE_SCATTER", "ALL_TO_ALL", "GATHER", "SCATTER"})
  void shouldRefuseSharesIfTheirTotalSizeOverflows(Collective kind) {
    boolean isOfInput = kind == Collective.REDUCE_SCATTER || kind == Collective.SCATTER;
    for (int nRanks : new int[] {2, 3, 4, 5}) {
      CollectiveCall call = new CallShape(kind, 1L << 62, I8, SUM, 0).on(null, null);
      shouldBeTooLarge(
          isOfInput ? () -> call.inputBytes(0, nRanks) : () -> call.outputBytes(0, nRanks),
          kind.label());
    }
    CollectiveCall allToAll = CollectiveCall.allToAll(null, null, 1L << 62, I8);
    shouldBeTooLarge(() -> allToAll.inputBytes(1, 2), "all-to-all");
    shouldBeTooLarge(() -> allToAll.totalBytes(2), "all-to-all");
  }
}
