// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.DataType;
import io.fluxccl.InvalidUsage;
import io.fluxccl.ReduceOp;
import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.FloatView;
import io.fluxccl.device.IntView;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.PinnedBuffer;
import io.fluxccl.testkit.LocalRanks;
import java.time.Duration;
import java.util.List;
import org.assertj.core.api.ThrowableAssert.ThrowingCallable;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import reactor.core.publisher.Mono;

/** Collectives of views, and arguments that are refused at once. Two ranks. */
@Timeout(120)
class ViewCallsTest {
  private static final Duration LONG = Duration.ofSeconds(60);

  interface Body {
    void run(int rank, Device device, Collectives collectives) throws Exception;
  }

  private static void onEachRank(Body body) {
    try (LocalRanks ranks = LocalRanks.of(2)) {
      ranks.run(
          rank -> {
            try (Collectives collectives = rank.collectives()) {
              body.run(rank.rank(), rank.device(), collectives);
            }
          });
    }
  }

  private static void assertRefused(ThrowingCallable call, String... parts) {
    assertThatThrownBy(call).isInstanceOf(InvalidUsage.class).hasMessageContainingAll(parts);
  }

  @Test
  void shouldTakeCountAndTypeFromViews() {
    onEachRank(
        (rank, device, collectives) -> {
          FloatView one = FloatView.of(device.allocate(4), DataType.FLOAT16);
          FloatView two = FloatView.of(device.allocate(8), DataType.FLOAT16);
          one.put(new float[] {rank + 0.5f, rank});
          collectives.allReduce(one, ReduceOp.SUM).block(LONG);
          assertThat(one.toArray()).containsExactly(2, 1);

          one.put(new float[] {10 + rank, rank});
          collectives.allGather(one, two).block(LONG);
          assertThat(two.toArray()).containsExactly(10, 0, 11, 1);

          collectives.reduceScatter(two, one, ReduceOp.SUM).block(LONG);
          assertThat(one.toArray()).containsExactly(rank == 0 ? 20 : 22, rank == 0 ? 0 : 2);

          collectives.broadcast(one, 1).block(LONG);
          assertThat(one.toArray()).containsExactly(22, 2);

          FloatView sum = rank == 0 ? two.slice(0, 2) : null;
          collectives.reduce(one, sum, ReduceOp.SUM, 0).block(LONG);
          assertThat(two.get(0)).isEqualTo(rank == 0 ? 44 : 10);
        });
  }

  @Test
  void shouldMoveViewsBetweenRanks() {
    onEachRank(
        (rank, device, collectives) -> {
          IntView one = device.allocateInts(2);
          IntView two = device.allocateInts(2, 2);
          IntView got = device.allocateInts(2, 2);
          two.put(new int[] {rank, 10 + rank, 20 + rank, 30 + rank});
          collectives.allToAll(two, got).block(LONG);
          assertThat(got.toArray())
              .containsExactly(rank * 20, 10 + rank * 20, rank * 20 + 1, 11 + rank * 20);

          collectives.scatter(rank == 1 ? two : null, one, 1).block(LONG);
          assertThat(one.toArray()).containsExactly(1 + 20 * rank, 11 + 20 * rank);

          collectives.gather(one, rank == 0 ? got : null, 0).block(LONG);
          assertThat(got.get(3)).isEqualTo(31);

          Mono<Void> passed = rank == 0 ? collectives.send(two, 1) : collectives.recv(got, 0);
          passed.block(LONG);
          assertThat(got.get(0)).isEqualTo(rank == 0 ? 1 : 0);

          collectives.pipeline().allReduce(two, ReduceOp.MAX).run().block(LONG);
          assertThat(two.toArray()).containsExactly(1, 11, 21, 31);
        });
  }

  @Test
  void shouldRefuseViewsThatDoNotFit() {
    onEachRank(
        (rank, device, collectives) -> {
          IntView three = device.allocateInts(3);
          IntView four = device.allocateInts(4);
          FloatView floats = device.allocateFloats(4);
          List<CollectiveOperations<?>> both = List.of(collectives, collectives.pipeline());
          for (CollectiveOperations<?> on : both) {
            assertRefused(() -> on.allReduce(three, four, ReduceOp.SUM), "all-reduce on rank");
            assertRefused(() -> on.allReduce(four, floats, ReduceOp.SUM), "same type");
            assertRefused(() -> on.allGather(three, four), "all-gather", "2 ranks");
            assertRefused(() -> on.reduceScatter(three, three, ReduceOp.SUM), "reduce-scatter");
            assertRefused(() -> on.allToAll(three, three), "all-to-all");
          }
        });
  }

  @Test
  void shouldRefuseNullAtTheCall() {
    onEachRank(
        (rank, device, collectives) -> {
          DeviceBuffer x = device.allocate(64);
          DeviceBuffer no = null;
          IntView ints = device.allocateInts(4);
          IntView none = null;
          DataType type = DataType.INT32;
          ReduceOp op = ReduceOp.SUM;
          List<CollectiveOperations<?>> both = List.of(collectives, collectives.pipeline());
          for (CollectiveOperations<?> on : both) {
            assertRefused(() -> on.allReduce(no, type, op), "all-reduce", "buffer=null");
            assertRefused(() -> on.allReduce(x, null, op), "all-reduce", "type=null");
            assertRefused(() -> on.allReduce(x, type, null), "all-reduce", "op=null");
            assertRefused(() -> on.allReduce(x, no, 1, type, op), "on rank " + rank, "output=null");
            assertRefused(() -> on.allGather(no, x, 1, type), "on rank " + rank, "input=null");
            assertRefused(() -> on.allGather(x, x, 1, null), "all-gather", "type=null");
            assertRefused(() -> on.reduceScatter(x, x, 1, type, null), "op=null");
            assertRefused(() -> on.broadcast(x, 1, null, 0), "broadcast", "type=null");
            assertRefused(() -> on.reduce(x, no, 1, type, op, rank), "output=null");
            assertRefused(() -> on.scatter(no, x, 1, type, rank), "input=null");
            assertRefused(() -> on.gather(no, x, 1, type, 0), "input=null");
            assertRefused(() -> on.allToAll(x, no, 1, type), "output=null");
            assertRefused(() -> on.allToAllv(x, null, x, new long[2], type), "sendCounts=null");
            assertRefused(() -> on.send(no, 1, type, 0), "input=null");
            assertRefused(() -> on.recv(x, 1, null, 0), "type=null");
            assertRefused(() -> on.enqueue(null), "call=null");
            assertRefused(() -> on.allReduce(none, op), "all-reduce", "view=null");
            assertRefused(() -> on.allReduce(ints, null), "op=null");
            assertRefused(() -> on.broadcast(none, 0), "view=null");
            assertRefused(() -> on.send(none, 0), "send", "input=null");
          }
          // Buffers that this rank does not need may be null; empty calls need none.
          collectives.scatter(no, x, 1, type, 1 - rank);
          collectives.allReduce(no, no, 0, type, op);
          assertRefused(() -> collectives.register(null), "register: buffer=null");
        });
  }

  @Test
  void shouldRefuseNullStepsAtTheCall() {
    onEachRank(
        (rank, device, collectives) -> {
          DeviceBuffer x = device.allocate(64);
          Pipeline pipeline = collectives.pipeline();
          assertRefused(() -> pipeline.launch(null, 1, 1, KernelArgs.NONE), "kernel=null");
          assertRefused(() -> pipeline.copy(x, 0, (DeviceBuffer) null, 0, 4), "source=null");
          assertRefused(() -> pipeline.copy(x, 0, (PinnedBuffer) null, 0, 4), "source=null");
          assertRefused(() -> pipeline.copy((PinnedBuffer) null, 0, x, 0, 4), "target=null");
          assertRefused(() -> pipeline.then((Pipeline) null), "then");
          assertRefused(() -> pipeline.then((CapturedPipeline) null), "captured=null");
          assertRefused(() -> pipeline.after((Pipeline) null), "after");
        });
  }

  @Test
  void shouldRefuseABufferThatCutsItsLastElement() {
    onEachRank(
        (rank, device, collectives) -> {
          DeviceBuffer ten = device.allocate(10);
          assertRefused(
              () -> collectives.allReduce(ten, DataType.FLOAT32, ReduceOp.SUM),
              "all-reduce",
              "10 bytes",
              "FLOAT32");
          collectives.allReduce(ten, DataType.FLOAT16, ReduceOp.SUM).block(LONG);
        });
  }
}
