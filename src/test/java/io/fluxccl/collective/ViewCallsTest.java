// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import static io.fluxccl.DataType.FLOAT16;
import static io.fluxccl.ReduceOp.SUM;
import static io.fluxccl.testing.Outcomes.refuses;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.DataType;
import io.fluxccl.ReduceOp;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.FloatView;
import io.fluxccl.device.IntView;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.PinnedBuffer;
import io.fluxccl.testing.OnRanks;
import io.fluxccl.testkit.LocalRank;
import java.time.Duration;
import java.util.List;
import org.junit.jupiter.api.Test;
import reactor.core.publisher.Mono;

/** Collectives of views, and arguments that are refused at once. Two ranks. */
@OnRanks
class ViewCallsTest {
  private static final Duration LONG = Duration.ofSeconds(60);

  @Test
  void shouldTakeCountAndTypeFromViews(LocalRank rank, Collectives collectives) {
    FloatView one = FloatView.of(rank.device().allocate(4), FLOAT16);
    FloatView two = FloatView.of(rank.device().allocate(8), FLOAT16);
    one.put(new float[] {rank.rank() + 0.5f, rank.rank()});
    collectives.allReduce(one, SUM).block(LONG);
    assertThat(one.toArray()).containsExactly(2, 1);

    one.put(new float[] {10 + rank.rank(), rank.rank()});
    collectives.allGather(one, two).block(LONG);
    assertThat(two.toArray()).containsExactly(10, 0, 11, 1);

    collectives.reduceScatter(two, one, SUM).block(LONG);
    assertThat(one.toArray()).containsExactly(rank.rank() == 0 ? 20 : 22, rank.rank() == 0 ? 0 : 2);

    collectives.broadcast(one, 1).block(LONG);
    assertThat(one.toArray()).containsExactly(22, 2);

    FloatView sum = rank.rank() == 0 ? two.slice(0, 2) : null;
    collectives.reduce(one, sum, SUM, 0).block(LONG);
    assertThat(two.get(0)).isEqualTo(rank.rank() == 0 ? 44 : 10);
  }

  @Test
  void shouldMoveViewsBetweenRanks(LocalRank rank, Collectives collectives) {
    IntView one = rank.device().allocateInts(2);
    IntView two = rank.device().allocateInts(2, 2);
    IntView got = rank.device().allocateInts(2, 2);
    two.put(new int[] {rank.rank(), 10 + rank.rank(), 20 + rank.rank(), 30 + rank.rank()});
    collectives.allToAll(two, got).block(LONG);
    assertThat(got.toArray())
        .containsExactly(
            rank.rank() * 20, 10 + rank.rank() * 20, rank.rank() * 20 + 1, 11 + rank.rank() * 20);

    collectives.scatter(rank.rank() == 1 ? two : null, one, 1).block(LONG);
    assertThat(one.toArray()).containsExactly(1 + 20 * rank.rank(), 11 + 20 * rank.rank());

    collectives.gather(one, rank.rank() == 0 ? got : null, 0).block(LONG);
    assertThat(got.get(3)).isEqualTo(31);

    Mono<Void> passed = rank.rank() == 0 ? collectives.send(two, 1) : collectives.recv(got, 0);
    passed.block(LONG);
    assertThat(got.get(0)).isEqualTo(rank.rank() == 0 ? 1 : 0);

    collectives.pipeline().allReduce(two, ReduceOp.MAX).run().block(LONG);
    assertThat(two.toArray()).containsExactly(1, 11, 21, 31);
  }

  @Test
  void shouldRefuseViewsThatDoNotFit(LocalRank rank, Collectives collectives) {
    IntView three = rank.device().allocateInts(3);
    IntView four = rank.device().allocateInts(4);
    FloatView floats = rank.device().allocateFloats(4);
    List<CollectiveOperations<?>> both = List.of(collectives, collectives.pipeline());
    for (CollectiveOperations<?> on : both) {
      refuses(() -> on.allReduce(three, four, SUM), "all-reduce on rank");
      refuses(() -> on.allReduce(four, floats, SUM), "same type");
      refuses(() -> on.allGather(three, four), "all-gather", "2 ranks");
      refuses(() -> on.reduceScatter(three, three, SUM), "reduce-scatter");
      refuses(() -> on.allToAll(three, three), "all-to-all");
    }
  }

  @Test
  void shouldRefuseNullAtTheCall(LocalRank rank, Collectives collectives) {
    DeviceBuffer x = rank.device().allocate(64);
    DeviceBuffer no = null;
    IntView ints = rank.device().allocateInts(4);
    IntView none = null;
    DataType type = DataType.INT32;
    ReduceOp op = SUM;
    List<CollectiveOperations<?>> both = List.of(collectives, collectives.pipeline());
    for (CollectiveOperations<?> on : both) {
      refuses(() -> on.allReduce(no, type, op), "all-reduce", "buffer=null");
      refuses(() -> on.allReduce(x, null, op), "all-reduce", "type=null");
      refuses(() -> on.allReduce(x, type, null), "all-reduce", "op=null");
      refuses(() -> on.allReduce(x, no, 1, type, op), "on rank " + rank.rank(), "output=null");
      refuses(() -> on.allGather(no, x, 1, type), "on rank " + rank.rank(), "input=null");
      refuses(() -> on.allGather(x, x, 1, null), "all-gather", "type=null");
      refuses(() -> on.reduceScatter(x, x, 1, type, null), "op=null");
      refuses(() -> on.broadcast(x, 1, null, 0), "broadcast", "type=null");
      refuses(() -> on.reduce(x, no, 1, type, op, rank.rank()), "output=null");
      refuses(() -> on.scatter(no, x, 1, type, rank.rank()), "input=null");
      refuses(() -> on.gather(no, x, 1, type, 0), "input=null");
      refuses(() -> on.allToAll(x, no, 1, type), "output=null");
      refuses(() -> on.allToAllv(x, null, x, new long[2], type), "sendCounts=null");
      refuses(() -> on.send(no, 1, type, 0), "input=null");
      refuses(() -> on.recv(x, 1, null, 0), "type=null");
      refuses(() -> on.enqueue(null), "call=null");
      refuses(() -> on.allReduce(none, op), "all-reduce", "view=null");
      refuses(() -> on.allReduce(ints, null), "op=null");
      refuses(() -> on.broadcast(none, 0), "view=null");
      refuses(() -> on.send(none, 0), "send", "input=null");
    }
    // Buffers that this rank.rank() does not need may be null; empty calls need none.
    collectives.scatter(no, x, 1, type, 1 - rank.rank());
    collectives.allReduce(no, no, 0, type, op);
    refuses(() -> collectives.register((DeviceBuffer) null), "register: buffer=null");
  }

  @Test
  void shouldRefuseNullStepsAtTheCall(LocalRank rank, Collectives collectives) {
    DeviceBuffer x = rank.device().allocate(64);
    Pipeline pipeline = collectives.pipeline();
    refuses(() -> pipeline.launch(null, 1, 1, KernelArgs.NONE), "kernel=null");
    refuses(() -> pipeline.copy(x, 0, (DeviceBuffer) null, 0, 4), "source=null");
    refuses(() -> pipeline.copy(x, 0, (PinnedBuffer) null, 0, 4), "source=null");
    refuses(() -> pipeline.copy((PinnedBuffer) null, 0, x, 0, 4), "target=null");
    refuses(() -> pipeline.then((Pipeline) null), "then");
    refuses(() -> pipeline.then((CapturedPipeline) null), "captured=null");
    refuses(() -> pipeline.after((Pipeline) null), "after");
  }

  @Test
  void shouldRefuseABufferThatCutsItsLastElement(LocalRank rank, Collectives collectives) {
    DeviceBuffer ten = rank.device().allocate(10);
    refuses(
        () -> collectives.allReduce(ten, DataType.FLOAT32, SUM),
        "all-reduce",
        "10 bytes",
        "FLOAT32");
    collectives.allReduce(ten, FLOAT16, SUM).block(LONG);
  }

  @Test
  void shouldTakeViewsWhereverBuffersAreTaken(LocalRank rank, Collectives collectives) {
    int other = 1 - rank.rank();
    IntView in = rank.device().allocateInts(3);
    IntView out = rank.device().allocateInts(3);
    in.put(new int[] {rank.rank(), 10 + rank.rank(), 20 + rank.rank()});
    long[] sent = rank.rank() == 0 ? new long[] {1, 2} : new long[] {2, 1};
    long[] received = rank.rank() == 0 ? new long[] {1, 2} : new long[] {2, 1};
    collectives.allToAllv(in, sent, out, received).block(LONG);
    assertThat(out.toArray())
        .containsExactly(rank.rank() == 0 ? new int[] {0, 1, 11} : new int[] {10, 20, 21});
    collectives.sendReceive(in, other, out, other).block(LONG);
    assertThat(out.toArray()).containsExactly(other, 10 + other, 20 + other);
    collectives.pipeline().copy(in, out).run().block(LONG);
    assertThat(in.toArray()).isEqualTo(out.toArray());
    collectives.register(in).join().close();
    FloatView floats = rank.device().allocateFloats(3);
    refuses(() -> collectives.sendReceive(in, other, floats, other), "same type");
    refuses(() -> collectives.pipeline().copy(floats, in), "one type");
  }
}
