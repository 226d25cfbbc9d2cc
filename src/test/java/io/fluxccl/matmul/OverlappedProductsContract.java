// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.matmul;

import static io.fluxccl.DataType.BFLOAT16;
import static io.fluxccl.DataType.FLOAT16;
import static io.fluxccl.testing.OnRanks.Runner.lane;
import static io.fluxccl.testing.Outcomes.completes;
import static io.fluxccl.testing.Outcomes.fails;
import static io.fluxccl.testing.Outcomes.failsJob;
import static io.fluxccl.testing.Outcomes.refuses;
import static org.assertj.core.api.Assertions.assertThat;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.fluxccl.Aborted;
import io.fluxccl.DataType;
import io.fluxccl.DeviceFailure;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.RemoteFailure;
import io.fluxccl.Timeout;
import io.fluxccl.collective.AddRmsNorm;
import io.fluxccl.collective.CapturedPipeline;
import io.fluxccl.collective.CollectiveCall;
import io.fluxccl.collective.Collectives;
import io.fluxccl.collective.CollectivesOptions;
import io.fluxccl.collective.Pipeline;
import io.fluxccl.collective.Registration;
import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceKind;
import io.fluxccl.device.FloatView;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.device.host.HostKernel;
import io.fluxccl.matmul.OverlapTable.Operation;
import io.fluxccl.matmul.OverlapTable.Rule;
import io.fluxccl.matmul.OverlapTable.Way;
import io.fluxccl.matmul.PackedMatrix.Result;
import io.fluxccl.testing.OnRanks;
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.testkit.ResourceLeaks;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import reactor.core.Disposable;

/**
 * Products with communication, in pieces and one after the other. Elements are small whole numbers,
 * so that all sums are exact.
 */
@OnRanks(seconds = 120)
abstract class OverlappedProductsContract {
  private static final Duration LONG = Duration.ofSeconds(60);
  private static final int INPUTS = 16;
  private static final int OUTPUTS = 24;
  private static final int SHARE = 5;
  private static final int MAX_ROWS = 64;

  @BeforeEach
  void findTheLibrary() {
    if (OnRanks.Runner.isOnGpus(getClass())) {
      String problem = MatrixProducts.unavailableBecause().orElse("");
      assumeTrue(problem.isEmpty(), problem);
    }
  }

  private static ProductShape shape(DataType type) {
    return new ProductShape(INPUTS, OUTPUTS, type, MAX_ROWS);
  }

  private static OverlapTable always(Way way, int ranks) {
    List<Rule> rules = new ArrayList<>();
    for (Operation operation : Operation.values()) {
      rules.add(new Rule(operation, ranks, INPUTS, OUTPUTS, MAX_ROWS, way));
    }
    return OverlapTable.DEFAULT.with(rules);
  }

  private static OverlappedProducts open(Collectives collectives, DataType type, Way way) {
    OverlapTable table = always(way, collectives.topology().nRanks());
    return OverlappedProducts.of(collectives, shape(type), table).join();
  }

  private static float[] numbers(int count, int seed) {
    Random random = new Random(seed);
    float[] numbers = new float[count];
    for (int i = 0; i < count; i++) {
      numbers[i] = random.nextInt(3) - 1;
    }
    return numbers;
  }

  private static float[] input(int rank, int rows, int round) {
    return numbers(rows * INPUTS, 100 * round + rank);
  }

  private static float[] factors(int rank) {
    return numbers(OUTPUTS * INPUTS, -1 - rank);
  }

  private static float[] multiplied(float[] in, float[] weights) {
    float[] out = new float[in.length / INPUTS * OUTPUTS];
    for (int i = 0; i < out.length; i++) {
      for (int k = 0; k < INPUTS; k++) {
        out[i] += in[i / OUTPUTS * INPUTS + k] * weights[i % OUTPUTS * INPUTS + k];
      }
    }
    return out;
  }

  /** The sum of all ranks' products. */
  private static float[] summed(int ranks, int rows, int round) {
    float[] sums = new float[rows * OUTPUTS];
    for (int rank = 0; rank < ranks; rank++) {
      float[] product = multiplied(input(rank, rows, round), factors(rank));
      for (int i = 0; i < sums.length; i++) {
        sums[i] += product[i];
      }
    }
    return sums;
  }

  private static float[] part(float[] of, int part, int parts) {
    int count = of.length / parts;
    float[] some = new float[count];
    System.arraycopy(of, part * count, some, 0, count);
    return some;
  }

  private static DeviceBuffer upload(Device device, DataType type, float[] values) {
    DeviceBuffer buffer = device.allocate(type.bytes(values.length));
    FloatView.of(buffer, type).put(values);
    return buffer;
  }

  private static float[] download(DeviceBuffer buffer, DataType type) {
    return FloatView.of(buffer, type).toArray();
  }

  /** Buffers of a rank for all operations. */
  private record Memory(DeviceBuffer in, DeviceBuffer weights, DeviceBuffer out) {
    static Memory of(LocalRank rank, DataType type, int rows) {
      return new Memory(
          upload(rank.device(), type, input(rank.rank(), rows, 0)),
          upload(rank.device(), type, factors(rank.rank())),
          rank.device().allocate(type.bytes((long) rows * OUTPUTS)));
    }

    /** Stores other inputs. */
    void begin(LocalRank rank, DataType type, int rows, int round) {
      FloatView.of(in, type).put(input(rank.rank(), rows, round));
    }
  }

  void checkAll(LocalRank rank, Collectives collectives, DataType type, Way way) {
    int n = rank.nRanks();
    int rows = SHARE * n;
    OverlappedProducts products = open(collectives, type, way);
    boolean overlaps = way == Way.PIECES && rank.device().kind() == DeviceKind.CUDA && n > 1;
    assertThat(products.way(Operation.MATMUL_REDUCE_SCATTER, rows))
        .isEqualTo(overlaps ? Way.PIECES : Way.SERIAL);
    Memory memory = Memory.of(rank, type, rows);
    DeviceBuffer share = rank.device().allocate(type.bytes((long) SHARE * OUTPUTS));
    DeviceBuffer own = rank.device().allocate(type.bytes((long) SHARE * INPUTS));
    DeviceBuffer gathered = rank.device().allocate(memory.out.size());
    Pipeline pipeline =
        products
            .matmulReduceScatter(rows, memory.in, memory.weights, share)
            .then(products.matmulAllReduce(rows, memory.in, memory.weights, memory.out))
            .then(products.allGatherMatmul(rows, own, memory.weights, gathered));
    try (CapturedPipeline captured = pipeline.capture()) {
      for (int round = 0; round < 4; round++) {
        memory.begin(rank, type, rows, round);
        FloatView.of(own, type).put(part(input(0, rows, round), rank.rank(), n));
        completes(round % 2 == 0 ? captured.run() : pipeline.run());
        float[] sums = summed(n, rows, round);
        assertThat(download(share, type)).containsExactly(part(sums, rank.rank(), n));
        assertThat(download(memory.out, type)).containsExactly(sums);
        assertThat(download(gathered, type))
            .containsExactly(multiplied(input(0, rows, round), factors(rank.rank())));
      }
      products.close();
      fails(captured.run(), InvalidUsage.class, "closed");
    }
    refuses(() -> products.matmulAllReduce(1, memory.in, memory.weights, memory.out), "closed");
    rank.awaitAll();
  }

  @ParameterizedTest
  @EnumSource(Way.class)
  void shouldGiveTheSumsOfTwoRanks(Way way, LocalRank rank, Collectives collectives) {
    checkAll(rank, collectives, BFLOAT16, way);
    checkAll(rank, collectives, FLOAT16, way);
  }

  @Test
  void shouldNormTheSummedRows(LocalRank rank, Collectives collectives) {
    int rows = 3;
    OverlappedProducts products = open(collectives, BFLOAT16, Way.SERIAL);
    Memory memory = Memory.of(rank, BFLOAT16, rows);
    DeviceBuffer residual = upload(rank.device(), BFLOAT16, numbers(rows * OUTPUTS, 7));
    DeviceBuffer weight = upload(rank.device(), BFLOAT16, numbers(OUTPUTS, 8));
    List<float[]> results = new ArrayList<>();
    for (int i = 0; i < 2; i++) {
      DeviceBuffer residualOut = rank.device().allocate(memory.out.size());
      DeviceBuffer normed = rank.device().allocate(memory.out.size());
      AddRmsNorm norm = new AddRmsNorm(residual, weight, 1e-5f, 0, residualOut, normed);
      if (i == 0) {
        completes(products.matmulAllReduce(rows, memory.in, memory.weights, norm).run());
      } else {
        float[] product = multiplied(input(rank.rank(), rows, 0), factors(rank.rank()));
        DeviceBuffer sums = upload(rank.device(), BFLOAT16, product);
        completes(
            collectives.run(CollectiveCall.fusedAllReduce(sums, rows, OUTPUTS, BFLOAT16, norm)));
      }
      results.add(download(residualOut, BFLOAT16));
      results.add(download(normed, BFLOAT16));
    }
    assertThat(results.get(0)).containsExactly(results.get(2));
    assertThat(results.get(1)).containsExactly(results.get(3));
    rank.awaitAll();
    products.close();
  }

  /** Needs GPUs. */
  void checkPackedWeights(LocalRank rank, Collectives collectives) {
    int rows = 3;
    OverlappedProducts products = open(collectives, BFLOAT16, Way.SERIAL);
    CudaDevice device = (CudaDevice) rank.device();
    Memory memory = Memory.of(rank, BFLOAT16, rows);
    DeviceBuffer residual = upload(device, BFLOAT16, new float[rows * OUTPUTS]);
    DeviceBuffer weight = upload(device, BFLOAT16, numbers(OUTPUTS, 8));
    DeviceBuffer sums = device.allocate(memory.out.size());
    AddRmsNorm norm = new AddRmsNorm(residual, weight, 1e-5f, 0, sums, memory.out);
    try (PackedProducts packed = PackedProducts.of(device, BFLOAT16, rows, INPUTS);
        PackedProducts others = PackedProducts.of(device, FLOAT16, rows, INPUTS)) {
      HostMatrix factors = ProductTests.matrix(BFLOAT16, factors(rank.rank()), OUTPUTS, INPUTS);
      PackedMatrix right = packed.pack(Result.ELEMENTS, factors);
      completes(products.matmulAllReduce(rows, memory.in, right, norm).run());
      assertThat(download(sums, BFLOAT16)).containsExactly(summed(2, rows, 0));
      HostMatrix narrow =
          ProductTests.matrix(BFLOAT16, factors(rank.rank()), 2 * OUTPUTS, INPUTS / 2);
      Map<PackedMatrix, String> wrong =
          Map.of(
              packed.pack(Result.ELEMENTS, narrow.rows(0, 2)), "inputs=8, outputs=24",
              packed.pack(Result.ELEMENTS, factors, factors), "outputs=48",
              packed.pack(Result.FLOATS, factors), "result=FLOATS",
              packed.pack(Result.GATED, factors), "result=GATED",
              others.pack(Result.ELEMENTS, factors), "type=FLOAT16");
      wrong.forEach(
          (matrix, found) ->
              refuses(
                  () -> products.matmulAllReduce(rows, memory.in, matrix, norm),
                  found,
                  "inputs=16, outputs=24, type=BFLOAT16, result=ELEMENTS"));
      refuses(() -> products.matmulAllReduce(65, memory.in, right, norm), "rows=65");
      products.close();
      refuses(() -> products.matmulAllReduce(rows, memory.in, right, norm), "closed");
      rank.awaitAll();
    }
  }

  @Test
  void shouldTuneAlikeOnAllRanks(LocalRank rank, Collectives collectives) {
    OverlappedProducts products = open(collectives, BFLOAT16, Way.SERIAL);
    OverlapTable table = products.tune(3, 4, 8, 9).join();
    Integer[] measured =
        rank.device().kind() == DeviceKind.CUDA
            ? new Integer[] {4, 4, 4, MAX_ROWS, MAX_ROWS, MAX_ROWS}
            : new Integer[] {MAX_ROWS, MAX_ROWS, MAX_ROWS};
    assertThat(table.rules()).extracting(Rule::upToRows).containsExactly(measured);
    refuses(() -> products.tune(MAX_ROWS + 1), "tune on rank " + rank.rank(), "rows=65");
    refuses(() -> products.tune(0, 4), "rows=0");
    refuses(() -> products.tune((int[]) null), "rows=null");
    refuses(() -> products.tune(8, 4), "rows=4 after rows=8");
    refuses(() -> products.tune(4, 4), "rows=4 after rows=4");
    products.close();
    OverlappedProducts.of(collectives, shape(BFLOAT16), table).join().close();
    rank.awaitAll();
  }

  @Test
  void shouldRefuseInvalidRowsAndBuffers(LocalRank rank, Collectives collectives) {
    OverlappedProducts products = open(collectives, BFLOAT16, Way.PIECES);
    Memory memory = Memory.of(rank, BFLOAT16, 4);
    DeviceBuffer in = memory.in;
    DeviceBuffer weights = memory.weights;
    DeviceBuffer out = memory.out;
    refuses(() -> products.matmulReduceScatter(3, in, weights, out), "rows=3", "2 ranks");
    refuses(() -> products.allGatherMatmul(5, in, weights, out), "rows=5", "2 ranks");
    refuses(() -> products.matmulAllReduce(0, in, weights, out), "rows=0", "maxRows=64");
    refuses(() -> products.matmulAllReduce(65, in, weights, out), "rows=65");
    refuses(() -> products.matmulAllReduce(4, in, weights, (DeviceBuffer) null), "out");
    refuses(() -> products.matmulAllReduce(5, in, weights, out), "in is", "at least 160 bytes");
    refuses(() -> products.matmulAllReduce(4, in, in, out), "weights is", "at least 768 bytes");
    refuses(() -> products.matmulAllReduce(4, in, out, out), "weights is");
    DeviceBuffer both = rank.device().allocate(1024);
    refuses(() -> products.matmulAllReduce(4, in, both, both), "out and weights overlap");
    if (rank.device().kind() == DeviceKind.CUDA) {
      DeviceBuffer off = both.slice(2, 1022);
      refuses(() -> products.matmulReduceScatter(4, off, weights, out), "in is", "aligned to 16");
      refuses(() -> products.allGatherMatmul(4, in, off, out), "weights is", "aligned to 16");
      refuses(() -> products.matmulAllReduce(4, in, weights, off), "out is", "aligned to 16");
    }
    refuses(() -> new ProductShape(8, 8, DataType.FLOAT32, 1), "FLOAT32", "give BFLOAT16");
    refuses(() -> new ProductShape(8, 0, BFLOAT16, 1), "outputs=0");
    Pipeline late = products.matmulReduceScatter(4, in, weights, out);
    Pipeline other = rank.collectives().pipeline();
    if (rank.collectives() != collectives) {
      refuses(() -> other.then(late), "another lane");
    }
    DeviceBuffer closed = rank.device().allocate(in.size());
    Pipeline ofClosed = products.matmulReduceScatter(4, closed, weights, out);
    closed.close();
    fails(ofClosed.run(), InvalidUsage.class, "in is closed", "rank " + rank.rank());
    out.close();
    fails(late.run(), InvalidUsage.class, "out", "rank " + rank.rank());
    rank.awaitAll();
    products.close();
  }

  @Test
  void shouldRefuseShapesThatDifferOnEveryRank(LocalRank rank, Collectives collectives) {
    ProductShape shape = new ProductShape(INPUTS, OUTPUTS + rank.rank(), BFLOAT16, MAX_ROWS);
    CompletableFuture<OverlappedProducts> opened = OverlappedProducts.of(collectives, shape);
    fails(opened, InvalidUsage.class, "outputs=24", "outputs=25", "rank 1");
    completes(collectives.barrier());
    OverlapTable table = always(rank.rank() == 0 ? Way.PIECES : Way.SERIAL, 2);
    fails(
        OverlappedProducts.of(collectives, shape(BFLOAT16), table), InvalidUsage.class, "table #");
    completes(collectives.barrier());
    rank.awaitAll();
  }

  private static void assertRefusedBecauseOfRank1(
      LocalRank rank, CompletableFuture<?> all, String call, String reason) {
    fails(
        all,
        rank.rank() == 1 ? FluxCclException.class : RemoteFailure.class,
        call + " on rank " + rank.rank(),
        rank.rank() == 1 ? reason : "rank 1",
        reason);
  }

  /** Rank 1 is late with the first of two set-ups, which all ranks call without waiting. */
  @Test
  void shouldMatchSetUpsThatAreNotAwaitedInTheirOrder(
      LocalRank rank, Collectives collectives, @TempDir Path folder) throws Exception {
    Path file = folder.resolve("table" + rank.rank());
    Files.writeString(file, OverlapTable.DEFAULT.toText());
    ProductShape wide = new ProductShape(INPUTS, 2 * OUTPUTS, BFLOAT16, MAX_ROWS);
    for (int round = 0; round < 10; round++) {
      CompletableFuture<OverlappedProducts> first =
          rank.rank() == 1
              ? OverlappedProducts.of(collectives, shape(BFLOAT16), file)
              : OverlappedProducts.of(collectives, shape(BFLOAT16));
      CompletableFuture<OverlappedProducts> second = OverlappedProducts.of(collectives, wide);
      DeviceBuffer own = rank.device().allocate(1 << 16);
      CompletableFuture<Registration> third = collectives.register(own);
      assertThat(first).succeedsWithin(Duration.ofSeconds(60));
      assertThat(second).succeedsWithin(Duration.ofSeconds(60));
      assertThat(third).succeedsWithin(Duration.ofSeconds(60));
      rank.awaitAll();
      first.join().close();
      second.join().close();
      third.join().close();
      own.close();
    }
    rank.awaitAll();
  }

  @Test
  void shouldFailOnAllRanksIfOneCannotReadItsTable(
      LocalRank rank, Collectives collectives, @TempDir Path folder) throws Exception {
    String text = always(Way.SERIAL, 2).toText() + (rank.rank() == 1 ? "soon\n" : "");
    Path file = Files.writeString(folder.resolve("table" + rank.rank()), text);
    CompletableFuture<OverlappedProducts> opened =
        OverlappedProducts.of(collectives, shape(BFLOAT16), file);
    assertRefusedBecauseOfRank1(rank, opened, "overlapped products", "line 5: 'soon'");
    Files.writeString(file, always(Way.SERIAL, 2).toText());
    completes(collectives.barrier());
    OverlappedProducts.of(collectives, shape(BFLOAT16), file).join().close();
    rank.awaitAll();
  }

  @Test
  void shouldFailOnAllRanksIfOneHasTooLittleMemory(LocalRank rank, Collectives collectives) {
    ProductShape huge = new ProductShape(1 << 30, 8, BFLOAT16, 1 << 30);
    CompletableFuture<OverlappedProducts> opened =
        OverlappedProducts.of(collectives, rank.rank() == 1 ? huge : shape(BFLOAT16));
    boolean isHost = rank.device().kind() == DeviceKind.HOST;
    if (rank.rank() == 1) {
      fails(opened, isHost ? InvalidUsage.class : DeviceFailure.class);
    }
    String reason = isHost ? "that one buffer of the host device can have" : "cuMem";
    assertRefusedBecauseOfRank1(rank, opened, "overlapped products", reason);
    completes(collectives.barrier());
    rank.awaitAll();
  }

  /** Needs ways to choose from. */
  void checkTuneFailsOnAllRanks(LocalRank rank, Collectives collectives) {
    OverlappedProducts products = open(collectives, BFLOAT16, Way.SERIAL);
    if (rank.rank() == 1) {
      products.close();
    }
    assertRefusedBecauseOfRank1(rank, products.tune(4), "tune", "closed");
    completes(collectives.barrier());
    rank.awaitAll();
    products.close();
  }

  @ParameterizedTest
  @EnumSource(Way.class)
  void shouldFailOnAllRanksIfRowsDiffer(Way way, LocalRank rank, Collectives collectives) {
    OverlappedProducts products = open(collectives, BFLOAT16, way);
    int rows = 4 + 2 * rank.rank();
    Memory memory = Memory.of(rank, BFLOAT16, rows);
    Pipeline call = products.matmulReduceScatter(rows, memory.in, memory.weights, memory.out);
    fails(call.run(), FluxCclException.class, "count=");
    failsJob(rank, FluxCclException.class, "count=");
  }

  @ParameterizedTest
  @EnumSource(Way.class)
  void shouldFailOnAllRanksIfOperationsDiffer(Way way, LocalRank rank, Collectives collectives) {
    OverlappedProducts products = open(collectives, BFLOAT16, way);
    Memory memory = Memory.of(rank, BFLOAT16, 4);
    Pipeline call =
        rank.rank() == 0
            ? products.matmulReduceScatter(4, memory.in, memory.weights, memory.out)
            : products.matmulAllReduce(4, memory.in, memory.weights, memory.out);
    fails(call.run(), FluxCclException.class, "count=");
    failsJob(rank, FluxCclException.class, "count=");
  }

  /** Rank 1 takes part in the first step only. */
  @ParameterizedTest
  @EnumSource(names = {"MATMUL_REDUCE_SCATTER", "ALL_GATHER_MATMUL"})
  void shouldTimeOutIfARankStopsInTheMiddle(Operation operation, LocalRank rank) {
    Collectives collectives = lane(rank, CollectivesOptions.DEFAULT.withTimeout(LONG));
    OverlappedProducts products = open(collectives, BFLOAT16, Way.PIECES);
    rank.awaitAll();
    if (rank.rank() == 0) {
      Pipeline call = call(products, operation, rank);
      fails(call.run(Duration.ofSeconds(8)), Timeout.class, "rank 0");
    } else if (products.way(operation, 4) == Way.PIECES) {
      DeviceBuffer bytes = rank.device().allocate(64);
      DataType type = operation == Operation.ALL_GATHER_MATMUL ? DataType.INT8 : DataType.UINT8;
      completes(collectives.allGather(bytes, bytes.slice(32, 4), 2, type));
    }
    failsJob(rank, Timeout.class);
  }

  private static Pipeline call(OverlappedProducts products, Operation operation, LocalRank rank) {
    Memory memory = Memory.of(rank, BFLOAT16, 4);
    return operation == Operation.ALL_GATHER_MATMUL
        ? products.allGatherMatmul(4, memory.in, memory.weights, memory.out)
        : products.matmulReduceScatter(4, memory.in, memory.weights, memory.out);
  }

  @ParameterizedTest
  @EnumSource(names = {"MATMUL_REDUCE_SCATTER", "ALL_GATHER_MATMUL"})
  void shouldFailIfAPeerAborts(Operation operation, LocalRank rank, Collectives collectives) {
    OverlappedProducts products = open(collectives, BFLOAT16, Way.PIECES);
    rank.awaitAll();
    if (rank.rank() == 1) {
      rank.communicator().abort(new Aborted(1, "rank 1 has had enough"));
    } else {
      fails(call(products, operation, rank).run(), Aborted.class, "had enough");
    }
    failsJob(rank, Aborted.class, "had enough");
  }

  @Test
  void shouldFinishEnqueuedWorkAfterClose(LocalRank rank, Collectives collectives) {
    OverlappedProducts products = open(collectives, BFLOAT16, Way.PIECES);
    int rows = 2 * SHARE;
    Memory memory = Memory.of(rank, BFLOAT16, rows);
    CountDownLatch closed = new CountDownLatch(1);
    if (rank.device().kind() == DeviceKind.HOST) {
      HostKernel wait = HostKernel.of("wait", (thread, args) -> await(closed));
      collectives.pipeline().launch(wait, 1, 1, KernelArgs.of()).run().subscribe();
    }
    CompletableFuture<Void> done =
        products.matmulAllReduce(rows, memory.in, memory.weights, memory.out).run().toFuture();
    products.close();
    memory.in.close();
    memory.weights.close();
    closed.countDown();
    assertThat(done).succeedsWithin(LONG);
    assertThat(download(memory.out, BFLOAT16)).containsExactly(summed(2, rows, 0));
    rank.awaitAll();
  }

  private static void await(CountDownLatch latch) {
    try {
      latch.await();
    } catch (InterruptedException e) {
      throw new AssertionError(e);
    }
  }

  @Test
  void shouldFreeTheMemoryIfTheFutureOfProductsIsCancelled(
      LocalRank rank, Collectives collectives) {
    OverlappedProducts.of(collectives, shape(BFLOAT16)).join().close();
    rank.awaitAll();
    ResourceLeaks leaks = ResourceLeaks.snapshot();
    rank.awaitAll();
    if (rank.rank() == 0) {
      OverlappedProducts.of(collectives, shape(BFLOAT16)).cancel(false);
      rank.awaitAll();
    } else {
      rank.awaitAll();
      OverlappedProducts.of(collectives, shape(BFLOAT16)).join().close();
    }
    leaks.assertNone(Duration.ofSeconds(20));
    rank.awaitAll();
  }

  @Test
  void shouldRunOnAfterASubscriberCancelled(LocalRank rank, Collectives collectives) {
    OverlappedProducts products = open(collectives, BFLOAT16, Way.PIECES);
    int rows = 2 * SHARE;
    Memory memory = Memory.of(rank, BFLOAT16, rows);
    Pipeline call = products.matmulReduceScatter(rows, memory.in, memory.weights, memory.out);
    for (int i = 0; i < 10; i++) {
      Disposable run = call.run().subscribe();
      run.dispose();
    }
    completes(call.run());
    assertThat(part(download(memory.out, BFLOAT16), 0, 2))
        .containsExactly(part(summed(2, rows, 0), rank.rank(), 2));
    rank.awaitAll();
    products.close();
  }
}
