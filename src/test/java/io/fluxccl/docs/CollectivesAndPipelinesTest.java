// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.docs;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.assertj.core.api.Assertions.within;

import io.fluxccl.DataType;
import io.fluxccl.ReduceOp;
import io.fluxccl.collective.AddRmsNorm;
import io.fluxccl.collective.CapturedPipeline;
import io.fluxccl.collective.CapturedSizes;
import io.fluxccl.collective.CollectiveCall;
import io.fluxccl.collective.Collectives;
import io.fluxccl.collective.CollectivesOptions;
import io.fluxccl.collective.ExpertBatch;
import io.fluxccl.collective.ExpertShape;
import io.fluxccl.collective.NamedCollectives;
import io.fluxccl.collective.Pipeline;
import io.fluxccl.collective.Registration;
import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.FloatView;
import io.fluxccl.device.IntView;
import io.fluxccl.device.Kernel;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.host.HostKernel;
import io.fluxccl.group.DeviceChoice;
import io.fluxccl.group.Grid;
import io.fluxccl.group.JoinOptions;
import io.fluxccl.group.RankGroup;
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.testkit.Ranks;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;
import reactor.core.scheduler.Schedulers;

/** The code of docs/8-collectives-and-pipelines.md and docs/21-fusion-and-reproducibility.md. */
@Timeout(120)
@Ranks(value = 2, leakCheck = false)
class CollectivesAndPipelinesTest {
  private static final Duration LONG = Duration.ofSeconds(60);
  private static final int COUNT = 1000;
  private static final int TOKENS = 16;
  private static final Executor MAY_BLOCK = Schedulers.boundedElastic()::schedule;

  private static void setFirst(DeviceBuffer x, float value) {
    FloatView.of(x).put(0, value);
  }

  private static float first(DeviceBuffer x) {
    return FloatView.of(x).get(0);
  }

  @Test
  void shouldAddAndNormInOneCall(LocalRank rank, Collectives collectives) {
    DeviceBuffer x = rank.device().allocate(COUNT * 4L);
    try (DeviceBuffer memory = rank.device().allocate(4L * 8 * Float.BYTES + 3 * 32)) {
      FloatView all = FloatView.of(memory);
      FloatView products = FloatView.of(x).slice(0, 32);
      FloatView residual = all.slice(0, 32);
      FloatView weight = all.slice(32, 8);
      fill(products, 1);
      fill(residual, 2);
      fill(weight, 3);
      collectives
          .allReduceAddRmsNorm(
              products, // a matrix product of each rank; used up
              residual, // 4 rows of 8 elements, like the products
              weight, // one row
              1e-6f, // epsilon
              0, // 1 for models that store weights minus one
              residual, // += the sum over the ranks
              products) // = RMSNorm(residual) * weight
          .block(LONG);
      assertThat(residual.get(31)).isEqualTo(4);
      assertThat(products.get(31)).isCloseTo(3, within(1e-5f));

      DeviceBuffer quantized = memory.slice(160, 32);
      DeviceBuffer scales = memory.slice(192, 16);
      fill(products, 1);
      AddRmsNorm norm =
          new AddRmsNorm(
                  residual.buffer(),
                  weight.buffer(),
                  1e-6f,
                  0,
                  residual.buffer(),
                  products.buffer())
              .withQuantization(new AddRmsNorm.WithRowScales(quantized, scales), false);
      Pipeline layer = collectives.pipeline().allReduce(x, 4, 8, DataType.FLOAT32, norm);
      layer.run().block(LONG);
      assertThat(FloatView.of(scales).get(3)).isCloseTo(3f / 448, within(1e-6f));
    }
  }

  @Test
  void shouldLimitBlocksAndUseCopyEnginesIfRequested(LocalRank rank) {
    CollectivesOptions modest = CollectivesOptions.DEFAULT.withMaxBlocks(16).withCopyEngines(true);
    try (Collectives collectives = Collectives.create(rank.communicator(), modest).join();
        DeviceBuffer x = rank.device().allocate(64)) {
      setFirst(x, rank.rank() + 1);
      collectives.allReduce(x, DataType.FLOAT32, ReduceOp.SUM).block(LONG);
      assertThat(first(x)).isEqualTo(3);
    }
  }

  private static void fill(FloatView view, float value) {
    for (long i = 0; i < view.size(); i++) {
      view.put(i, value);
    }
  }

  @Test
  void shouldDoOneAfterTheOther(LocalRank rank, Collectives collectives) throws Exception {
    DeviceBuffer x = rank.device().allocate(COUNT * 4L);
    setFirst(x, 1);
    DeviceBuffer all = rank.device().allocate(2 * COUNT * 4L);
    Mono<Void> sum = collectives.allReduce(x, DataType.FLOAT32, ReduceOp.SUM);
    Mono<Void> gathered = collectives.allGather(x, all, COUNT, DataType.FLOAT32);
    CompletableFuture<Void> done = sum.then(gathered).then(sum).toFuture();
    done.get(60, TimeUnit.SECONDS);
    assertThat(first(all)).isEqualTo(2);
    assertThat(first(x)).isEqualTo(4);
  }

  @Test
  void shouldGiveTokensToTheirExpertsAndTakeTheSums(LocalRank rank, Collectives collectives) {
    Device device = rank.device();
    int blocks = 1;
    int threads = 1;
    DeviceBuffer tokens = device.allocate(TOKENS * 128L);
    DeviceBuffer scales = device.allocate(TOKENS * 4L);
    DeviceBuffer received = device.allocate(2 * TOKENS * 128L);
    DeviceBuffer receivedScales = device.allocate(2 * TOKENS * 4L);
    DeviceBuffer given = device.allocate(2 * TOKENS * 256L);
    DeviceBuffer combined = device.allocate(TOKENS * 256L);
    ExpertShape shape =
        new ExpertShape(TOKENS, 2, 8, 128, DataType.FLOAT8_E4M3, 2 * TOKENS); // top 2 of 8 experts
    ExpertBatch batch = ExpertBatch.allocate(device, shape, collectives.topology().nRanks());
    Kernel gate = HostKernel.of("gate", (thread, args) -> gate(batch));
    Kernel experts = HostKernel.of("experts", (thread, args) -> giveWeights(batch, given));
    KernelArgs args = KernelArgs.NONE;
    CapturedPipeline layer =
        collectives
            .pipeline()
            .launch(gate, blocks, threads, KernelArgs.of(batch.ids(), batch.weights()))
            .dispatch(batch, tokens, scales, received, receivedScales)
            .launch(experts, blocks, threads, args)
            .combine(batch, given, combined)
            .capture();
    layer.run().block(LONG);
    FloatView sums = FloatView.of(combined, DataType.BFLOAT16);
    for (int token = 0; token < TOKENS; token++) {
      assertThat(sums.get(token * 128L)).isEqualTo(1);
    }
    layer.close();
  }

  private static void gate(ExpertBatch batch) {
    for (int token = 0; token < TOKENS; token++) {
      for (int k = 0; k < 2; k++) {
        IntView.of(batch.ids()).put(token * 2L + k, (token + 3 * k) % 8);
        FloatView.of(batch.weights()).put(token * 2L + k, k == 0 ? 0.25f : 0.75f);
      }
    }
  }

  /** Experts of which each gives ones. */
  private static void giveWeights(ExpertBatch batch, DeviceBuffer given) {
    FloatView values = FloatView.of(given, DataType.BFLOAT16);
    for (int place = 0; place < batch.shape().capacity(); place++) {
      float weight =
          FloatView.of(batch.receivedWeights()).get(2L * place)
              + FloatView.of(batch.receivedWeights()).get(2L * place + 1);
      values.put(place * 128L, weight);
    }
  }

  @Test
  void shouldRunACaptureThatIsLargeEnough(LocalRank rank, Collectives collectives) {
    FloatView floats = FloatView.of(rank.device().allocate(2048));
    floats.put(63, 1);
    floats.put(64, 1);
    try (CapturedSizes sizes =
        CapturedSizes.of(
            new int[] {8, 64, 512},
            size -> collectives.pipeline().allReduce(floats.slice(0, size), ReduceOp.SUM))) {
      sizes.atLeast(50).run().block(LONG); // all-reduces 64 floats
    }
    assertThat(floats.get(63)).isEqualTo(2);
    assertThat(floats.get(64)).isEqualTo(1);
  }

  @Test
  void shouldRefuseToBlockInAContinuation(LocalRank rank, Collectives collectives) {
    DeviceBuffer x = rank.device().allocate(COUNT * 4L);
    Mono<Void> sum = collectives.allReduce(x, DataType.FLOAT32, ReduceOp.SUM);
    Mono<Void> bad =
        sum.doOnSuccess(done -> collectives.barrier().block()); // BAD: IllegalStateException
    Mono<Void> good = sum.then(collectives.barrier()); // GOOD
    good.block(LONG);
    // If the collective were already complete, the subscribing thread would run the
    // continuation. So the kernel holds it.
    CountDownLatch subscribed = new CountDownLatch(1);
    Kernel hold = HostKernel.of("hold", (thread, args) -> subscribed.await());
    collectives.stream().launch(hold, 1, 1, KernelArgs.NONE);
    CompletableFuture<Void> refused = bad.toFuture();
    subscribed.countDown();
    assertThatThrownBy(refused::join)
        .cause()
        .isInstanceOf(IllegalStateException.class)
        .hasMessageContaining("blocking");
  }

  @Test
  void shouldBlockWhereItMay(LocalRank rank) {
    CollectivesOptions elsewhere =
        CollectivesOptions.DEFAULT.withScheduler(Schedulers.boundedElastic());
    DeviceBuffer x = rank.device().allocate(COUNT * 4L);
    try (Collectives collectives = Collectives.create(rank.communicator(), elsewhere).join()) {
      Mono<Void> sum = collectives.allReduce(x, DataType.FLOAT32, ReduceOp.SUM);
      sum.doOnSuccess(done -> Mono.delay(Duration.ofMillis(1)).block()).block(LONG);
    }
  }

  @Test
  void shouldKeepOneOrderOnAllRanks(LocalRank rank) {
    CollectivesOptions checked = CollectivesOptions.DEFAULT.withChecks(true);
    DeviceBuffer x = rank.device().allocate(COUNT * 4L);
    try (Collectives collectives = Collectives.create(rank.communicator(), checked).join()) {
      setFirst(x, 1 + rank.rank());
      DeviceBuffer y = rank.device().allocate(COUNT * 4L);
      Mono<Void> sum = collectives.allReduce(x, DataType.FLOAT32, ReduceOp.SUM);
      Mono<Void> best = collectives.allReduce(y, DataType.FLOAT32, ReduceOp.MAX);
      // BAD: which of the two comes first, each rank decides for itself
      Mono<Void> bad =
          Mono.when(
              sum.subscribeOn(Schedulers.parallel()), best.subscribeOn(Schedulers.parallel()));
      // GOOD: one thread subscribes to both, in this order, and waits for neither
      Mono<Void> good = Mono.when(sum, best);
      good.block(LONG);
      assertThat(first(x)).isEqualTo(3);
      assertThat(bad).isNotNull();
    }
  }

  @Test
  void shouldMatchByName(LocalRank rank, Collectives collectives) {
    List<String> buckets = new ArrayList<>(List.of("embedding", "attention", "mlp"));
    Map<String, FloatView> views = new HashMap<>();
    buckets.forEach(each -> views.put(each, rank.device().allocateFloats(COUNT)));
    views.values().forEach(each -> setFirst(each.buffer(), 1 + rank.rank()));
    Collections.rotate(buckets, rank.rank());
    try (NamedCollectives named = collectives.named().join()) {
      Flux.fromIterable(buckets)
          .flatMap(each -> ready(each).then(named.allReduce(each, views.get(each), ReduceOp.AVG)))
          .then()
          .block(LONG);
    }
    assertThat(views.values()).allMatch(each -> first(each.buffer()) == 1.5f);
  }

  private static Mono<Long> ready(String bucket) {
    return Mono.delay(Duration.ofMillis(bucket.length()));
  }

  private static Kernel scale() {
    return HostKernel.of(
        "scale",
        (thread, args) -> {
          DeviceBuffer x = args.get(0, DeviceBuffer.class);
          setFirst(x, first(x) * args.get(1, Float.class));
        });
  }

  @Test
  void shouldEnqueueAStepAtOnce(LocalRank rank, Collectives collectives) {
    DeviceBuffer x = rank.device().allocate(COUNT * 4L);
    setFirst(x, 1);
    DeviceBuffer hidden = x;
    Kernel attention = scale();
    Kernel mlp = scale();
    int blocks = 1;
    int threads = 1;
    KernelArgs args = KernelArgs.of(x, 0.5f);
    Pipeline layer =
        collectives
            .pipeline()
            .launch(attention, blocks, threads, args)
            .allReduce(hidden, DataType.FLOAT32, ReduceOp.SUM)
            .launch(mlp, blocks, threads, args)
            .allReduce(hidden, DataType.FLOAT32, ReduceOp.SUM);
    Mono<Void> step = layer.then(layer).run();
    step.block(LONG);
    assertThat(first(x)).isEqualTo(1);

    try (CapturedPipeline captured = layer.capture()) {
      captured.run().block(LONG);
      captured.run(100).block(LONG); // a hundred launches, one signal
    }
    assertThat(first(x)).isEqualTo(1);
  }

  @Test
  void shouldRegisterOnAllRanks(LocalRank rank, Collectives collectives) {
    DeviceBuffer x = rank.device().allocate(COUNT * 4L);
    try (Registration inPlace = collectives.register(x).join()) { // set-up: may wait
      collectives.allReduce(x, DataType.FLOAT32, ReduceOp.SUM).block(LONG);
      collectives.allReduce(x.slice(64, 128), DataType.FLOAT32, ReduceOp.SUM).block(LONG);
      assertThat(inPlace.buffer()).isSameAs(x);
    }
  }

  @Test
  void shouldOverlapLanes(LocalRank rank, Collectives collectives) {
    DeviceBuffer x = rank.device().allocate(COUNT * 4L);
    DeviceBuffer gradients = rank.device().allocate(COUNT * 4L);
    Kernel kernel = scale();
    KernelArgs args = KernelArgs.of(x, 2f);
    setFirst(gradients, 1);
    setFirst(x, 1);
    Collectives background = collectives.lane("background").join();
    Pipeline reduce = background.pipeline().allReduce(gradients, DataType.FLOAT32, ReduceOp.AVG);
    Pipeline compute = collectives.pipeline().launch(kernel, 1, 1, args);
    Pipeline update =
        collectives.pipeline().after(reduce).copy(x, 0, gradients, 0, gradients.size());
    // On the device: reduce runs beside compute, update after both. The host waits once.
    Mono.when(reduce.run(), compute.run(), update.run()).block(LONG);
    assertThat(first(x)).isEqualTo(1);
    rank.awaitAll();
    background.close();
  }

  @Test
  void shouldComputeOnChunksWhileOthersMove(LocalRank rank, Collectives collectives) {
    DeviceBuffer x = rank.device().allocate(COUNT * 4L);
    List<Long> seen = new CopyOnWriteArrayList<>();
    CollectiveCall sum = CollectiveCall.allReduce(x, x, COUNT, DataType.FLOAT32, ReduceOp.SUM);
    collectives
        .chunked(sum, 256)
        .doOnNext(chunk -> consume(seen, x, chunk.offset(), chunk.count()))
        .then()
        .block(LONG);
    assertThat(seen).containsExactly(256L, 256L, 256L, 232L);
  }

  private static void consume(List<Long> seen, DeviceBuffer x, long offset, long count) {
    assertThat(x.size()).isGreaterThanOrEqualTo((offset + count) * 4);
    seen.add(count);
  }

  @Test
  void shouldCompleteTheCallIfASubscriberTimesOut(LocalRank rank, Collectives collectives) {
    DeviceBuffer x = rank.device().allocate(COUNT * 4L);
    setFirst(x, 1);
    Mono<Void> sum = collectives.allReduce(x, DataType.FLOAT32, ReduceOp.SUM);
    Mono<Void> impatient = sum.timeout(Duration.ofMillis(20)); // ends this wait only
    impatient.onErrorComplete(TimeoutException.class).then(collectives.barrier()).block(LONG);
    assertThat(first(x)).isEqualTo(2);
  }

  @Test
  void shouldFormSubGroups() throws Exception {
    List<RankGroup> job = RankGroup.local(4, JoinOptions.of(0, 1).withDevice(DeviceChoice.HOST));
    CompletableFuture.allOf(
            job.stream()
                .map(group -> CompletableFuture.runAsync(() -> useSubGroups(group), MAY_BLOCK))
                .toArray(CompletableFuture<?>[]::new))
        .get(60, TimeUnit.SECONDS);
    RankGroup.closeAll(job);
  }

  private static void useSubGroups(RankGroup group) {
    DeviceBuffer hidden = group.device().allocate(COUNT * 4L);
    setFirst(hidden, group.rank());
    Map<String, RankGroup> groups =
        group.grid(Grid.of("tensor", 2).by("pipeline", 2)).join(); // ranks 0+1, 2+3 and 0+2, 1+3
    RankGroup tensor = groups.get("tensor");
    tensor.collectives().allReduce(hidden, DataType.FLOAT32, ReduceOp.SUM).block(LONG);
    assertThat(first(hidden)).isEqualTo(group.rank() < 2 ? 1 : 5);
    Pipeline layer =
        tensor
            .pipeline()
            .allReduce(hidden, DataType.FLOAT32, ReduceOp.SUM)
            .then(groups.get("pipeline").collectives(), CollectiveCall.barrier());
    layer.run().block(LONG);
    assertThat(first(hidden)).isEqualTo(group.rank() < 2 ? 2 : 10);
    int color = group.rank() % 2 == 0 ? 0 : -1; // negative: takes no part
    Optional<RankGroup> even = group.split("even", color, group.rank()).join();
    assertThat(even.isPresent()).isEqualTo(group.rank() % 2 == 0);
    hidden.close();
  }
}
