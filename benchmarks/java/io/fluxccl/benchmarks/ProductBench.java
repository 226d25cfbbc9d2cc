// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.benchmarks;

import static io.fluxccl.DataType.BFLOAT16;

import io.fluxccl.Text;
import io.fluxccl.collective.AddRmsNorm;
import io.fluxccl.collective.CapturedPipeline;
import io.fluxccl.collective.Pipeline;
import io.fluxccl.concurrent.Lifecycle;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.HalfFloat;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.group.RankGroup;
import io.fluxccl.matmul.HostMatrix;
import io.fluxccl.matmul.MatrixProduct;
import io.fluxccl.matmul.MatrixProducts;
import io.fluxccl.matmul.OverlapTable;
import io.fluxccl.matmul.OverlapTable.Operation;
import io.fluxccl.matmul.OverlapTable.Rule;
import io.fluxccl.matmul.OverlapTable.Way;
import io.fluxccl.matmul.OverlappedProducts;
import io.fluxccl.matmul.PackedMatrix;
import io.fluxccl.matmul.PackedProducts;
import io.fluxccl.matmul.ProductShape;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.function.Supplier;

/**
 * Products with their communication, of a layer that the ranks share: {@link OverlappedProducts}
 * beside the product and the collective one after the other, and a product of packed weights with
 * its all-reduce and norm beside the product alone. Matrices are random; figures are the times of
 * captured pipelines on rank 0.
 *
 * <p>Arguments: a divisor of all sizes (1), for emulated GPUs.
 */
final class ProductBench {
  private static final int WIDTH = 8192;
  private static final int INNER = 28672;
  private static final int[] ROWS = {128, 512, 2048, 8192};
  private static final int NORM_WIDTH = 4096;
  private static final int[] NORM_ROWS = {256, 64, 8, 1};
  private static final int ROUNDS = 9;
  private static final int WARM_UPS = 2;
  private static final int RUNS = 4;
  private static final int LAYERS = 6;
  private static final int TILE = 64;
  private static final Duration LONG = Duration.ofSeconds(60);

  static final Bench ON_TWO = onGpus("products", 2);
  static final Bench ON_FOUR = onGpus("products-4", 4);

  private final RankGroup group;
  private final CudaDevice device;
  private final Bench.Rows rows;
  private final int divisor;
  private final Random random = new Random(1);

  private ProductBench(RankGroup group, Bench.Rows rows, int divisor) {
    this.group = group;
    this.device = (CudaDevice) group.device();
    this.rows = rows;
    this.divisor = divisor;
  }

  private static Bench onGpus(String id, int count) {
    String what = "products with their communication, beside one after the other, %d GPUs";
    return Bench.onGpus(count, id, Text.of(what, count), ProductBench::run)
        .inRanks(count)
        .within(180);
  }

  private static void run(Bench.Rows rows, List<String> arguments) throws Exception {
    int divisor = arguments.isEmpty() ? 1 : Integer.parseInt(arguments.get(0));
    try (RankGroup group = RankGroup.fromEnvironment().join()) {
      ProductBench bench = new ProductBench(group, rows, divisor);
      for (int inputs : new int[] {INNER / 2, NORM_WIDTH}) {
        bench.norm(Math.max(TILE, inputs / group.nRanks() / divisor / TILE * TILE));
      }
      for (int count : ROWS) {
        for (Operation operation : Operation.values()) {
          bench.overlap(operation, count / divisor);
        }
      }
    }
  }

  private ByteBuffer numbers(long count) {
    ByteBuffer bytes = ByteBuffer.allocate(Math.toIntExact(BFLOAT16.bytes(count)));
    bytes.order(ByteOrder.LITTLE_ENDIAN);
    while (bytes.hasRemaining()) {
      bytes.putShort(HalfFloat.toBfloat16(random.nextFloat() - 0.5f));
    }
    return bytes.flip();
  }

  private DeviceBuffer matrix(Lifecycle owned, long rowCount, long width) {
    long bytes = BFLOAT16.bytes(rowCount * width);
    DeviceBuffer matrix = owned.own(device.allocate(bytes));
    ByteBuffer piece = numbers(Math.min(bytes, 1 << 20) / BFLOAT16.size());
    for (long at = 0; at < bytes; at += piece.capacity()) {
      int length = (int) Math.min(piece.capacity(), bytes - at);
      matrix.upload(at, piece.limit(length).position(0));
    }
    return matrix;
  }

  private void overlap(Operation operation, int count) throws Exception {
    boolean gathers = operation == Operation.ALL_GATHER_MATMUL;
    int share = INNER / group.nRanks() / divisor;
    int width = WIDTH / divisor;
    ProductShape shape =
        new ProductShape(gathers ? width : share, gathers ? share : width, BFLOAT16, count);
    Rule serial =
        new Rule(operation, group.nRanks(), shape.inputs(), shape.outputs(), count, Way.SERIAL);
    Lifecycle owned = new Lifecycle("products");
    try {
      DeviceBuffer in = matrix(owned, count, shape.inputs());
      DeviceBuffer weights = matrix(owned, shape.outputs(), shape.inputs());
      DeviceBuffer out = matrix(owned, count, shape.outputs());
      MatrixProducts products = owned.own(new MatrixProducts(device));
      MatrixProduct alone =
          products.plan(shape.outputs(), shape.inputs(), BFLOAT16, BFLOAT16, count);
      List<Supplier<Pipeline>> ways = new ArrayList<>();
      ways.add(
          () ->
              group
                  .pipeline()
                  .enqueue("product", stream -> alone.enqueue(stream, count, in, weights, out)));
      for (OverlapTable table :
          List.of(OverlapTable.DEFAULT.with(List.of(serial)), OverlapTable.DEFAULT)) {
        OverlappedProducts both =
            owned.own(OverlappedProducts.of(group.collectives(), shape, table).join());
        ways.add(
            () ->
                switch (operation) {
                  case MATMUL_REDUCE_SCATTER -> both.matmulReduceScatter(count, in, weights, out);
                  case ALL_GATHER_MATMUL -> both.allGatherMatmul(count, in, weights, out);
                  default -> both.matmulAllReduce(count, in, weights, out);
                });
      }
      double[] micros = measure(owned, ways, LAYERS);
      if (group.rank() == 0) {
        String what = Text.of("%s of %d rows", operation, count);
        rows.compare(what, micros[2], micros[1], "us", "one after the other", "<= 1.02");
        rows.compare(what + ", whole", micros[2], micros[0], "us", "the product alone", "");
      }
    } finally {
      owned.close();
    }
  }

  private void norm(int inputs) throws Exception {
    int width = NORM_WIDTH / divisor;
    int most = Math.max(1, NORM_ROWS[0] / divisor);
    Lifecycle owned = new Lifecycle("products");
    try {
      PackedProducts packed = owned.own(PackedProducts.of(device, BFLOAT16, most, inputs));
      HostMatrix host = HostMatrix.of(numbers((long) width * inputs), BFLOAT16, width, inputs);
      PackedMatrix weights = packed.pack(PackedMatrix.Result.ELEMENTS, host);
      ProductShape shape = new ProductShape(inputs, width, BFLOAT16, most);
      OverlappedProducts both = owned.own(OverlappedProducts.of(group.collectives(), shape).join());
      DeviceBuffer in = matrix(owned, packed.roomFor(most), inputs);
      DeviceBuffer out = matrix(owned, most, width);
      DeviceBuffer residual = matrix(owned, most, width);
      AddRmsNorm norm = new AddRmsNorm(residual, matrix(owned, 1, width), 1e-5f, 0, residual, out);
      for (int each : NORM_ROWS) {
        int count = Math.max(1, each / divisor);
        double[] micros =
            measure(
                owned,
                List.of(
                    () ->
                        group
                            .pipeline()
                            .enqueue("product", stream -> weights.enqueue(stream, count, in, out)),
                    () -> both.matmulAllReduce(count, in, weights, norm)),
                20);
        if (group.rank() == 0) {
          String what = Text.of("%d inputs, %d rows, all-reduce and norm", inputs, count);
          rows.compare(what, micros[1], micros[0], "us", "the product alone", "");
        }
      }
    } finally {
      owned.close();
    }
  }

  /**
   * Returns the median time of each way, measured in turns.
   *
   * @param times how often a captured pipeline has its steps
   */
  private double[] measure(Lifecycle owned, List<Supplier<Pipeline>> ways, int times)
      throws Exception {
    Samples.Measured[] measured = new Samples.Measured[ways.size()];
    for (int i = 0; i < measured.length; i++) {
      Pipeline steps = ways.get(i).get();
      for (int more = 1; more < times; more++) {
        steps = steps.then(ways.get(i).get());
      }
      CapturedPipeline captured = owned.own(steps.capture());
      measured[i] =
          () -> {
            group.collectives().barrier().block(LONG);
            long begin = System.nanoTime();
            captured.run(RUNS).block(LONG);
            return (System.nanoTime() - begin) / 1e3 / RUNS / times;
          };
    }
    Samples.inTurns(WARM_UPS, measured);
    double[][] all = Samples.inTurns(ROUNDS, measured);
    double[] medians = new double[all.length];
    for (int i = 0; i < all.length; i++) {
      medians[i] = Samples.median(all[i]);
    }
    return medians;
  }
}
