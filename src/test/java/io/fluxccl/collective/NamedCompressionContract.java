// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import static io.fluxccl.DataType.BFLOAT16;
import static io.fluxccl.DataType.FLOAT16;
import static io.fluxccl.DataType.FLOAT8_E4M3;
import static io.fluxccl.ReduceOp.AVG;
import static io.fluxccl.ReduceOp.MAX;
import static io.fluxccl.ReduceOp.PROD;
import static io.fluxccl.ReduceOp.SUM;
import static io.fluxccl.testing.Outcomes.completes;
import static io.fluxccl.testing.Outcomes.fails;
import static io.fluxccl.testing.Outcomes.refuses;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.DataType;
import io.fluxccl.InvalidUsage;
import io.fluxccl.ReduceOp;
import io.fluxccl.concurrent.Closing;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.FloatView;
import io.fluxccl.testing.OnRanks;
import io.fluxccl.testing.Rounds;
import io.fluxccl.testkit.LocalRank;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Random;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import reactor.core.publisher.Flux;

/** Named all-reduces whose elements travel as other types: the error that is promised. */
@OnRanks(value = 3, seconds = 120)
abstract class NamedCompressionContract {
  private static final long BUCKET = 1 << 16;

  /** Elements; the last ones are more than a bucket as 16 bits. */
  private static final int[] SIZES = {1, 7, 64, 1000, 3001, 8192, 333, 100_003};

  private final Map<Integer, float[][]> inputs = new ConcurrentHashMap<>();
  private final Map<Integer, float[][]> outputs = new ConcurrentHashMap<>();

  private static NamedOptions compressed(DataType type) {
    return NamedOptions.DEFAULT.withBucketBytes(BUCKET).withCompression(name -> Optional.of(type));
  }

  /** Returns values of a tensor's own magnitude, some of which are far smaller than others. */
  private static float[] values(int tensor, Random random) {
    float[] values = new float[SIZES[tensor]];
    for (int i = 0; i < values.length; i++) {
      double value = random.nextGaussian() * Math.pow(10, tensor - 5);
      values[i] = (float) (i % 5 == 0 ? value / 1000 : value);
    }
    return values;
  }

  /** Returns the rounding error of a value as a type, and the least error in its tensor. */
  private static double error(DataType type, double value, double largest, int nRanks) {
    return switch (type) {
      case FLOAT16 -> Math.max(value * 0x1p-11, 0x1p-25);
      case BFLOAT16 -> value * 0x1p-8;
      default -> Math.max(value * 0x1p-4, nRanks * 0x1p-16 * largest);
    };
  }

  @ParameterizedTest
  @EnumSource(
      value = DataType.class,
      names = {"FLOAT16", "BFLOAT16", "FLOAT8_E4M3"})
  void shouldGiveAllRanksEqualBitsWithinTheErrorBound(DataType type, LocalRank rank) {
    Random random = new Random(Rounds.SEED + rank.rank());
    List<FloatView> tensors =
        Arrays.stream(SIZES).mapToObj(size -> rank.device().allocateFloats(size)).toList();
    List<Integer> order = new ArrayList<>(IntStream.range(0, SIZES.length).boxed().toList());
    try (NamedCollectives named = rank.collectives().named(compressed(type)).join()) {
      for (ReduceOp op : List.of(SUM, AVG, MAX)) {
        Collections.shuffle(order, random);
        float[][] own = new float[SIZES.length][];
        for (int i = 0; i < SIZES.length; i++) {
          own[i] = values(i, random);
          tensors.get(i).put(own[i]);
        }
        inputs.put(rank.rank(), own);
        completes(
            Flux.fromIterable(order)
                .flatMap(i -> named.allReduce("tensor " + i, tensors.get(i), op))
                .then());
        float[][] results = tensors.stream().map(FloatView::toArray).toArray(float[][]::new);
        outputs.put(rank.rank(), results);
        rank.awaitAll();
        for (int i = 0; i < SIZES.length; i++) {
          assertThat(results[i]).as("bits of tensor %s", i).isEqualTo(outputs.get(0)[i]);
          check(type, op, i, rank.nRanks(), results[i]);
        }
        rank.awaitAll();
      }
    }
    Closing.all(tensors.stream().map(FloatView::buffer).toList());
  }

  /** Compares results with exact ones: each value was rounded once, and each sum. */
  private void check(DataType type, ReduceOp op, int tensor, int nRanks, float[] results) {
    double largest = 0;
    for (int rank = 0; rank < nRanks; rank++) {
      for (float value : inputs.get(rank)[tensor]) {
        largest = Math.max(largest, Math.abs(value));
      }
    }
    for (int i = 0; i < results.length; i++) {
      double sum = 0;
      double most = Double.NEGATIVE_INFINITY;
      double magnitudes = 0;
      double bound = 0;
      for (int rank = 0; rank < nRanks; rank++) {
        double value = inputs.get(rank)[tensor][i];
        sum += value;
        most = Math.max(most, value);
        magnitudes += Math.abs(value);
        bound += error(type, Math.abs(value), largest, nRanks);
        bound += error(type, magnitudes + bound, largest, nRanks);
      }
      double exact = op == SUM ? sum : op == AVG ? sum / nRanks : most;
      assertThat((double) results[i])
          .as("%s of element %s of tensor %s as %s", op, i, tensor, type)
          .isBetween(exact - bound * 1.001, exact + bound * 1.001);
    }
  }

  @Test
  void shouldFuseCompressedCallsAndKeepOthersExact(LocalRank rank) {
    NamedOptions options =
        NamedOptions.DEFAULT.withCompression(
            name -> name.startsWith("c") ? Optional.of(BFLOAT16) : Optional.empty());
    int tensors = 40;
    try (NamedCollectives named = rank.collectives().named(options).join();
        FloatView all = rank.device().allocateFloats(100L * tensors)) {
      float third = 1 / 3f;
      float[] values = new float[100 * tensors];
      Arrays.fill(values, third);
      all.put(values);
      completes(
          Flux.range(0, tensors)
              .flatMap(
                  i ->
                      named.allReduce(
                          (i % 2 == 0 ? "compressed " : "exact ") + i,
                          all.slice(100L * i, 100),
                          MAX))
              .then());
      float rounded = Float.intBitsToFloat(0x3eab0000);
      for (int i = 0; i < tensors; i++) {
        float expected = i % 2 == 0 ? rounded : third;
        assertThat(Arrays.copyOfRange(all.toArray(), 100 * i, 100 * i + 100))
            .containsOnly(expected);
      }
      assertThat(named.lane.rounds).as("operations").isLessThan(tensors * 3 / 4);
    }
  }

  @Test
  void shouldShowBothCompressionsThatDiffer(LocalRank rank) {
    NamedOptions options =
        NamedOptions.DEFAULT.withCompression(
            name -> {
              boolean isPlain = name.equals("plain") && rank.rank() == 1;
              return isPlain
                  ? Optional.empty()
                  : Optional.of(rank.rank() == 1 ? BFLOAT16 : FLOAT16);
            });
    try (NamedCollectives named = rank.collectives().named(options).join();
        FloatView x = rank.device().allocateFloats(4)) {
      String half = "all-reduce(count=4, FLOAT32 as FLOAT16, SUM)";
      String[] types = {half, "all-reduce(count=4, FLOAT32 as BFLOAT16, SUM)"};
      fails(named.allReduce("x", x, SUM), InvalidUsage.class, types);
      String[] plain = {half, "all-reduce(count=4, FLOAT32, SUM)"};
      fails(named.allReduce("plain", x, SUM), InvalidUsage.class, plain);
      completes(named.barrier("after"));
      assertThat(rank.communicator().failure()).isNull();
    }
  }

  @Test
  void shouldRefuseCallsThatItCanNotCompress(LocalRank rank) {
    try (NamedCollectives named = rank.collectives().named(compressed(FLOAT16)).join();
        NamedCollectives bits = lane(rank, compressed(DataType.INT32));
        NamedCollectives single = lane(rank, compressed(FLOAT16).withBucketBytes(0));
        DeviceBuffer x = rank.device().allocate(16);
        DeviceBuffer all = rank.device().allocate(16L * rank.nRanks())) {
      FloatView floats = FloatView.of(x, DataType.FLOAT32);
      String remedy = "named call 'x': ";
      refuses(() -> named.of("x").allReduce(x, x, 4, DataType.INT32, SUM), remedy, "INT32");
      refuses(() -> named.of("x").allReduce(x, x, 8, BFLOAT16, SUM), remedy, "as FLOAT16");
      refuses(() -> named.of("x").allGather(x, all, 4, DataType.FLOAT32), remedy, "only all-red");
      refuses(() -> named.allReduce("x", floats, PROD), remedy, "no products");
      refuses(() -> bits.allReduce("x", floats, SUM), remedy, "one of [FLOAT16");
      refuses(() -> single.allReduce("x", floats, SUM), remedy, "bucketBytes of 4096 or more");
      completes(named.barrier("x"));
    }
  }

  @Test
  void shouldNameTheCallIfItsCompressionIsNotKnown(LocalRank rank) {
    NamedOptions fails =
        NamedOptions.DEFAULT.withCompression(
            name -> {
              throw new IllegalStateException("no such layer");
            });
    NamedOptions none = NamedOptions.DEFAULT.withCompression(name -> null);
    try (NamedCollectives failing = lane(rank, fails);
        NamedCollectives without = lane(rank, none);
        FloatView x = rank.device().allocateFloats(4)) {
      refuses(() -> failing.allReduce("x", x, SUM), "named call 'x'", "no such layer");
      refuses(() -> without.allReduce("x", x, SUM), "named call 'x'", "null", "Optional.empty()");
      completes(failing.barrier("x"));
      completes(without.allReduce("fluxccl.x", x, SUM));
    }
    NamedOptions all = NamedOptions.DEFAULT.withPriority(name -> 7);
    assertThat(all.priorityOf("x")).isEqualTo(7);
    assertThat(all.priorityOf("fluxccl.x")).isZero();
  }

  private static NamedCollectives lane(LocalRank rank, NamedOptions options) {
    return rank.collectives().named(options).join();
  }

  /** Powers of two stay exact if the factor is that of the largest element. */
  @Test
  void shouldScaleByTheLargestElementOfEachCallAloneWhereverItIs(LocalRank rank) {
    int count = 20_000;
    float small = 0x1p-20f;
    try (NamedCollectives named = rank.collectives().named(compressed(FLOAT8_E4M3)).join();
        FloatView x = rank.device().allocateFloats(count);
        FloatView other = rank.device().allocateFloats(5)) {
      float[] values = new float[count];
      for (int largest : new int[] {0, 4095, 4096, 9999, count - 1}) {
        Arrays.fill(values, small);
        values[largest] = 0x1p20f;
        x.put(values);
        other.put(new float[] {small, small, small, small, small});
        completes(
            Flux.merge(named.allReduce("x", x, SUM), named.allReduce("other", other, SUM)).then());
        assertThat(x.toArray()[largest]).isEqualTo(rank.nRanks() * 0x1p20f);
        assertThat(other.toArray()).containsOnly(rank.nRanks() * small);
        values[largest] = small;
        x.put(values);
        completes(named.allReduce("x", x, SUM));
        assertThat(x.toArray()).containsOnly(rank.nRanks() * small);
      }
    }
  }

  @Test
  void shouldGiveNaNToATensorThatIsInfiniteOnARank(LocalRank rank) {
    try (NamedCollectives named = rank.collectives().named(compressed(FLOAT8_E4M3)).join();
        FloatView x = rank.device().allocateFloats(100);
        FloatView zeros = rank.device().allocateFloats(100)) {
      x.put(5, rank.rank() == 1 ? Float.NEGATIVE_INFINITY : 1);
      completes(
          Flux.merge(named.allReduce("x", x, SUM), named.allReduce("zeros", zeros, SUM)).then());
      assertThat(x.toArray()).containsOnly(Float.NaN);
      assertThat(zeros.toArray()).containsOnly(0);
    }
  }

  @Test
  void shouldGiveNaNOnlyToTheBucketfulThatIsInfiniteOnARank(LocalRank rank) {
    int bucket = (int) BUCKET; // elements of one byte
    try (NamedCollectives named = rank.collectives().named(compressed(FLOAT8_E4M3)).join();
        FloatView x = rank.device().allocateFloats(2L * bucket + 9)) {
      x.put(bucket, rank.rank() == 1 ? Float.POSITIVE_INFINITY : 1);
      x.put(2L * bucket, 1);
      completes(named.allReduce("x", x, SUM));
      float[] sums = x.toArray();
      assertThat(Arrays.copyOf(sums, bucket)).containsOnly(0);
      assertThat(Arrays.copyOfRange(sums, bucket, 2 * bucket)).containsOnly(Float.NaN);
      assertThat(Arrays.copyOfRange(sums, 2 * bucket, 2 * bucket + 2))
          .containsExactly(rank.nRanks(), 0);
    }
  }
}
