// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.cuda;

import static io.fluxccl.DataType.FLOAT32;
import static io.fluxccl.ReduceOp.SUM;
import static io.fluxccl.testing.OnRanks.Runner.lane;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.DataType;
import io.fluxccl.ReduceOp;
import io.fluxccl.collective.CapturedPipeline;
import io.fluxccl.collective.Collective;
import io.fluxccl.collective.CollectiveCall;
import io.fluxccl.collective.Collectives;
import io.fluxccl.collective.CollectivesOptions;
import io.fluxccl.collective.NearWrap;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.FloatView;
import io.fluxccl.testing.Bytes;
import io.fluxccl.testing.OnRanks;
import io.fluxccl.testkit.LocalRank;
import java.time.Duration;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/**
 * All-reduces that send codes of 8 bits: the error that is promised, and the same bits anywhere.
 */
@Timeout(300)
@OnRanks(seconds = 100)
abstract class QuantizedContract {
  private static final Duration LONG = Duration.ofSeconds(100);
  private static final int GROUP = 112;

  /** Of half the distance between two codes, for the rounding of factors and scales. */
  private static final double SLACK = 1.001;

  private static CollectivesOptions options(String algorithm) {
    return CollectivesOptions.DEFAULT.withAlgorithm(Collective.ALL_REDUCE, algorithm);
  }

  /** The output of a rank. */
  private record Output(byte[] bits, float[] values) {}

  private final Map<Integer, float[]> inputs = new ConcurrentHashMap<>();
  private final Map<Integer, Output> outputs = new ConcurrentHashMap<>();

  @ParameterizedTest(name = "{1} of {3} {2} on {0} ranks")
  @CsvSource({
    "2, quantized-int8, FLOAT32, 1",
    "2, quantized-int8, FLOAT16, 10007",
    "5, quantized-int8, BFLOAT16, 4999",
    "2, quantized-f8e4m3, BFLOAT16, 70001",
    "8, quantized-f8e4m3, FLOAT32, 3333",
    "3, quantized-f8e4m3, FLOAT16, 448"
  })
  @OnRanks(OnRanks.FIRST_ARGUMENT)
  void shouldStayWithinTheErrorBound(
      int nRanks, String algorithm, DataType type, int count, LocalRank rank) {
    reduce(rank, algorithm, values(rank.rank(), count), type);
    if (rank.rank() == 0) {
      float[][] all = IntStream.range(0, nRanks).mapToObj(inputs::get).toArray(float[][]::new);
      checkSums(algorithm, type, all, outputs.get(0).values);
    }
  }

  @Test
  @Tag("long")
  void shouldStayWithinTheErrorBoundForLargeSums(LocalRank rank) {
    shouldStayWithinTheErrorBound(2, "quantized-int8", FLOAT32, 2_000_003, rank);
  }

  private static void checkSums(
      String algorithm, DataType type, float[][] inputs, float[] results) {
    int count = results.length;
    double[] sums = new double[count];
    double[] all = new double[(count + GROUP - 1) / GROUP];
    double[][] most = new double[inputs.length][];
    for (int rank = 0; rank < inputs.length; rank++) {
      double[] input = new double[count];
      for (int i = 0; i < count; i++) {
        input[i] = inputs[rank][i];
        sums[i] += input[i];
      }
      most[rank] = mostAround(input);
      for (int group = 0; group < all.length; group++) {
        all[group] = Math.max(all[group], most[rank][group]);
      }
    }
    double[] mostSums = mostAround(sums);
    for (int i = 0; i < count; i++) {
      int group = i / GROUP;
      double error = 0;
      for (int rank = 0; rank < inputs.length; rank++) {
        error += step(algorithm, Math.abs(inputs[rank][i]), most[rank][group]);
      }
      // The sum is rounded once more, with the errors that it has by then.
      double before = inputs.length * step(algorithm, all[group], all[group]);
      double sum = Math.abs(sums[i]);
      error += step(algorithm, sum + error, mostSums[group] + before);
      double bound = SLACK * error + (sum + error) * rounding(type) + 1e-7;
      if (!(Math.abs(results[i] - sums[i]) <= bound)) {
        throw new AssertionError(
            "element %d: %s instead of %s, and %s is allowed"
                .formatted(i, results[i], sums[i], bound));
      }
    }
  }

  /** Reduces twice in a graph; all ranks and both runs must produce identical bits. */
  private void reduce(LocalRank rank, String algorithm, float[] input, DataType type) {
    int bytes = input.length * type.size();
    try (Collectives collectives = NearWrap.of(lane(rank, options(algorithm)));
        FloatView in = FloatView.of(rank.device().allocate(bytes), type);
        FloatView out = FloatView.of(rank.device().allocate(bytes), type)) {
      in.put(input);
      inputs.put(rank.rank(), in.toArray());
      CollectiveCall call =
          CollectiveCall.allReduce(in.buffer(), out.buffer(), input.length, type, SUM);
      assertThat(collectives.algorithmFor(call)).isEqualTo(algorithm);
      byte[] bits;
      try (CapturedPipeline step = collectives.pipeline().then(call).capture()) {
        step.run().block(LONG);
        bits = Bytes.of(out.buffer());
        outputs.put(rank.rank(), new Output(bits, out.toArray()));
        step.run(3).block(LONG);
      }
      assertThat(Bytes.of(out.buffer())).as("the same bits each time").isEqualTo(bits);
      rank.awaitAll();
      assertThat(bits).as("the bits of rank 0").isEqualTo(outputs.get(0).bits);
    }
  }

  /**
   * Returns the largest magnitude in each group and its neighbours, because the real group borders
   * depend on the shares. The bound in docs/reference/algorithms.md uses it.
   */
  private static double[] mostAround(double[] values) {
    double[] most = new double[(values.length + GROUP - 1) / GROUP];
    for (int i = 0; i < values.length; i++) {
      for (int group = i / GROUP - 1; group <= i / GROUP + 1; group++) {
        if (group >= 0 && group < most.length) {
          most[group] = Math.max(most[group], Math.abs(values[i]));
        }
      }
    }
    return most;
  }

  private static double rounding(DataType type) {
    return switch (type) {
      case FLOAT16 -> 0x1p-11;
      case BFLOAT16 -> 0x1p-9;
      default -> 0x1p-24;
    };
  }

  /** Returns the error of one value as a code. */
  private static double step(String algorithm, double magnitude, double most) {
    return algorithm.equals("quantized-int8")
        ? most / 254
        : Math.max(magnitude / 16, most / 448 / 1024);
  }

  @Test
  void shouldReturnNaNsOnlyForGroupsThatContainInfinity(LocalRank rank) {
    float[] input = new float[4 * GROUP];
    for (int i = 0; i < input.length; i++) {
      input[i] = i % 7;
    }
    input[GROUP / 2] = rank.rank() == 0 ? Float.POSITIVE_INFINITY : 1;
    reduce(rank, "quantized-int8", input, FLOAT32);
    float[] output = outputs.get(rank.rank()).values;
    for (int i = 0; i < output.length; i++) {
      assertThat(Float.isFinite(output[i])).as("element %d", i).isEqualTo(i >= GROUP);
      assertThat(Float.isNaN(output[i])).as("element %d", i).isEqualTo(i < GROUP);
    }
  }

  @Test
  void shouldNotChooseQuantizedAlgorithmsByDefault(LocalRank rank) {
    try (Collectives collectives = Collectives.create(rank.communicator()).join();
        DeviceBuffer buffer = rank.device().allocate(64 << 20)) {
      for (long count = 1; count <= buffer.size() / 2; count *= 8) {
        CollectiveCall call =
            CollectiveCall.allReduce(buffer, buffer, count, DataType.BFLOAT16, SUM);
        assertThat(collectives.algorithmFor(call)).doesNotContain("quantized");
        assertThat(collectives.algorithmsFor(call))
            .isNotEmpty()
            .noneMatch(name -> name.contains("quantized"));
      }
    }
    // It is not chosen for operations that it doesn't support, even if the options name it.
    try (Collectives collectives = lane(rank, options("quantized-int8").withTag(7));
        DeviceBuffer buffer = rank.device().allocate(64)) {
      for (ReduceOp op : new ReduceOp[] {ReduceOp.MAX, ReduceOp.AVG}) {
        assertThat(
                collectives.algorithmFor(CollectiveCall.allReduce(buffer, buffer, 8, FLOAT32, op)))
            .doesNotContain("quantized");
      }
    }
  }

  /** Returns values of very different magnitudes. */
  private static float[] values(int rank, int count) {
    Random random = new Random(rank * 31L + count);
    float[] values = new float[count];
    for (int i = 0; i < count; i++) {
      values[i] = (float) (random.nextGaussian() * Math.pow(2, (i / 500) % 9 - 4));
    }
    return values;
  }
}
