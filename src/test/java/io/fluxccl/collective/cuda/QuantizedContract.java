// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.cuda;

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
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.testkit.LocalRanks;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.time.Duration;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.ConcurrentHashMap;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/**
 * All-reduces that send codes of 8 bits: the error that is promised, and the same bits anywhere.
 */
@Timeout(300)
abstract class QuantizedContract {
  private static final Duration LONG = Duration.ofSeconds(100);
  private static final int GROUP = 112;

  /** Of half the distance between two codes, for the rounding of factors and scales. */
  private static final double SLACK = 1.001;

  abstract LocalRanks ranks(int n);

  private static CollectivesOptions options(String algorithm) {
    return CollectivesOptions.DEFAULT.withAlgorithm(Collective.ALL_REDUCE, algorithm);
  }

  @ParameterizedTest(name = "{0} of {3} {2} on {1} ranks")
  @CsvSource({
    "quantized-int8, 2, FLOAT32, 1",
    "quantized-int8, 2, FLOAT16, 10007",
    "quantized-int8, 5, BFLOAT16, 4999",
    "quantized-f8e4m3, 2, BFLOAT16, 70001",
    "quantized-f8e4m3, 8, FLOAT32, 3333",
    "quantized-f8e4m3, 3, FLOAT16, 448"
  })
  void shouldStayWithinTheErrorBound(String algorithm, int nRanks, DataType type, int count) {
    Map<Integer, byte[]> results = new ConcurrentHashMap<>();
    float[][] inputs = new float[nRanks][];
    for (int rank = 0; rank < nRanks; rank++) {
      inputs[rank] = values(rank, count, type);
    }
    try (LocalRanks ranks = ranks(nRanks)) {
      ranks.run(
          LONG,
          rank -> results.put(rank.rank(), reduce(rank, algorithm, inputs[rank.rank()], type)));
    }
    assertThat(results.values())
        .hasSize(nRanks)
        .allSatisfy(r -> assertThat(r).isEqualTo(results.get(0)));
    checkSums(algorithm, type, inputs, decode(results.get(0), type));
  }

  @Test
  @Tag("long")
  void shouldStayWithinTheErrorBoundForLargeSums() {
    shouldStayWithinTheErrorBound("quantized-int8", 2, DataType.FLOAT32, 2_000_003);
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

  private static byte[] reduce(LocalRank rank, String algorithm, float[] input, DataType type) {
    int bytes = input.length * type.size();
    try (Collectives collectives =
            NearWrap.of(Collectives.create(rank.communicator(), options(algorithm)).join());
        DeviceBuffer buffer = rank.device().allocate(bytes);
        DeviceBuffer output = rank.device().allocate(bytes)) {
      buffer.upload(0, encode(input, type));
      CollectiveCall call =
          CollectiveCall.allReduce(buffer, output, input.length, type, ReduceOp.SUM);
      assertThat(collectives.algorithmFor(call)).isEqualTo(algorithm);
      byte[] first;
      try (CapturedPipeline step = collectives.pipeline().then(call).capture()) {
        step.run().block(LONG);
        first = download(output, bytes);
        step.run(3).block(LONG);
      }
      assertThat(download(output, bytes)).as("the same bits each time").isEqualTo(first);
      return first;
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
  void shouldReturnNaNsOnlyForGroupsThatContainInfinity() {
    Map<Integer, float[]> results = new ConcurrentHashMap<>();
    int count = 4 * GROUP;
    try (LocalRanks ranks = ranks(2)) {
      ranks.run(
          LONG,
          rank -> {
            float[] input = new float[count];
            for (int i = 0; i < count; i++) {
              input[i] = i % 7;
            }
            input[GROUP / 2] = rank.rank() == 0 ? Float.POSITIVE_INFINITY : 1;
            byte[] result = reduce(rank, "quantized-int8", input, DataType.FLOAT32);
            results.put(rank.rank(), decode(result, DataType.FLOAT32));
          });
    }
    assertThat(results.get(0)).containsExactly(results.get(1));
    for (int i = 0; i < GROUP; i++) {
      assertThat(results.get(0)[i]).isNaN();
    }
    for (int i = GROUP; i < count; i++) {
      assertThat(results.get(0)[i]).isFinite();
    }
  }

  @Test
  void shouldNotChooseQuantizedAlgorithmsByDefault() {
    try (LocalRanks ranks = ranks(2)) {
      ranks.run(
          LONG,
          rank -> {
            try (Collectives collectives = Collectives.create(rank.communicator()).join();
                DeviceBuffer buffer = rank.device().allocate(64 << 20)) {
              for (long count = 1; count <= buffer.size() / 2; count *= 8) {
                CollectiveCall call =
                    CollectiveCall.allReduce(
                        buffer, buffer, count, DataType.BFLOAT16, ReduceOp.SUM);
                assertThat(collectives.algorithmFor(call)).doesNotContain("quantized");
                assertThat(collectives.algorithmsFor(call))
                    .isNotEmpty()
                    .noneMatch(name -> name.contains("quantized"));
              }
            }
            // It is not chosen for operations that it doesn't support, even if the options name it.
            try (Collectives collectives =
                    Collectives.create(rank.communicator(), options("quantized-int8").withTag(7))
                        .join();
                DeviceBuffer buffer = rank.device().allocate(64)) {
              for (ReduceOp op : new ReduceOp[] {ReduceOp.MAX, ReduceOp.AVG}) {
                assertThat(
                        collectives.algorithmFor(
                            CollectiveCall.allReduce(buffer, buffer, 8, DataType.FLOAT32, op)))
                    .doesNotContain("quantized");
              }
            }
          });
    }
  }

  /** Returns values of very different magnitudes that the type represents exactly. */
  private static float[] values(int rank, int count, DataType type) {
    Random random = new Random(rank * 31L + count);
    float[] values = new float[count];
    for (int i = 0; i < count; i++) {
      float value = (float) (random.nextGaussian() * Math.pow(2, (i / 500) % 9 - 4));
      values[i] = decode(array(encode(new float[] {value}, type)), type)[0];
    }
    return values;
  }

  private static ByteBuffer encode(float[] values, DataType type) {
    ByteBuffer bytes =
        ByteBuffer.allocateDirect(values.length * type.size()).order(ByteOrder.LITTLE_ENDIAN);
    for (float value : values) {
      switch (type) {
        case FLOAT16 -> bytes.putShort(toHalf(value));
        case BFLOAT16 -> bytes.putShort((short) (Float.floatToRawIntBits(value) >>> 16));
        default -> bytes.putFloat(value);
      }
    }
    return bytes.flip();
  }

  private static float[] decode(byte[] from, DataType type) {
    ByteBuffer bytes = ByteBuffer.wrap(from).order(ByteOrder.LITTLE_ENDIAN);
    float[] values = new float[from.length / type.size()];
    for (int i = 0; i < values.length; i++) {
      values[i] =
          switch (type) {
            case FLOAT16 -> fromHalf(bytes.getShort());
            case BFLOAT16 -> Float.intBitsToFloat(bytes.getShort() << 16);
            default -> bytes.getFloat();
          };
    }
    return values;
  }

  /** Truncated; the values here are normal in binary16. */
  private static short toHalf(float value) {
    int bits = Float.floatToRawIntBits(value);
    int exponent = (bits >>> 23 & 0xff) - 112;
    return (short)
        (exponent <= 0
            ? bits >>> 16 & 0x8000
            : bits >>> 16 & 0x8000 | exponent << 10 | bits >>> 13 & 0x3ff);
  }

  private static float fromHalf(short half) {
    int exponent = half >>> 10 & 0x1f;
    double fraction = (half & 0x3ff) / 1024.0;
    double magnitude =
        exponent == 0 ? Math.scalb(fraction, -14) : Math.scalb(1 + fraction, exponent - 15);
    return (float) (half < 0 ? -magnitude : magnitude);
  }

  private static byte[] array(ByteBuffer bytes) {
    byte[] array = new byte[bytes.remaining()];
    bytes.get(array);
    return array;
  }

  private static byte[] download(DeviceBuffer buffer, int length) {
    ByteBuffer target = ByteBuffer.allocateDirect(length).order(ByteOrder.LITTLE_ENDIAN);
    buffer.download(0, target);
    return array(target.flip());
  }
}
