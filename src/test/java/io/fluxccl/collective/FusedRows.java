// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import static io.fluxccl.testing.OnRanks.Runner.lane;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.DataType;
import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.FloatView;
import io.fluxccl.device.HalfFloat;
import io.fluxccl.device.host.Float8;
import io.fluxccl.testing.Bytes;
import io.fluxccl.testkit.LocalRank;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Random;
import java.util.Set;
import java.util.SplittableRandom;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Consumer;
import java.util.stream.IntStream;

/**
 * Fused all-reduces of rows whose content is a function of a number. The result of a row must be
 * identical on all ranks, by all algorithms, for any row count and at any position.
 */
final class FusedRows {
  static final Duration LONG = Duration.ofSeconds(180);

  private static final float EPSILON = 1e-5f;
  private static final float STATIC_SCALE = 0.05f;

  /** Results by type, row length, row number and kind of output. */
  private final Map<String, byte[]> results = new ConcurrentHashMap<>();

  /** Names of the algorithms that ran. */
  final Set<String> used = ConcurrentHashMap.newKeySet();

  /** The buffers of a rank. */
  private record Buffers(
      DeviceBuffer input,
      DeviceBuffer residual,
      DeviceBuffer weight,
      DeviceBuffer residualOut,
      DeviceBuffer normOut,
      DeviceBuffer quantized,
      DeviceBuffer scales)
      implements AutoCloseable {
    static Buffers of(Device device, int rows, int hidden) {
      int most = rows * hidden * Float.BYTES;
      return new Buffers(
          device.allocate(most),
          device.allocate(most),
          device.allocate((long) hidden * Float.BYTES),
          device.allocate(most),
          device.allocate(most),
          device.allocate((long) rows * hidden),
          device.allocate((long) rows * Float.BYTES));
    }

    @Override
    public void close() {
      List.of(input, residual, weight, residualOut, normOut, quantized, scales)
          .forEach(DeviceBuffer::close);
    }
  }

  /** Rows of a length in random order; kinds: plain, with a scale, with a scale for each row. */
  private record Rows(DataType type, int hidden, int kind, List<Integer> numbers) {
    static Rows of(DataType type, int hidden, int kind, int count) {
      List<Integer> numbers = new ArrayList<>(IntStream.range(0, count).boxed().toList());
      Collections.shuffle(numbers, new Random(count));
      return new Rows(type, hidden, kind, numbers);
    }

    CollectiveCall call(Buffers on, boolean inPlace) {
      DeviceBuffer residualOut = inPlace ? on.residual : on.residualOut;
      DeviceBuffer out = inPlace ? on.input : on.normOut;
      AddRmsNorm norm = new AddRmsNorm(on.residual, on.weight, EPSILON, bias(), residualOut, out);
      return CollectiveCall.fusedAllReduce(
          on.input,
          numbers.size(),
          hidden,
          type,
          switch (kind) {
            case 0 -> norm;
            case 1 ->
                norm.withQuantization(new AddRmsNorm.WithScale(on.quantized, STATIC_SCALE), true);
            default ->
                norm.withQuantization(new AddRmsNorm.WithRowScales(on.quantized, on.scales), true);
          });
    }

    float bias() {
      return kind == 1 ? 1 : 0;
    }

    int rowBytes() {
      return hidden * type.size();
    }

    void fill(Buffers on, int rank) {
      for (DeviceBuffer out : List.of(on.residualOut, on.normOut, on.quantized, on.scales)) {
        byte[] poison = new byte[Math.toIntExact(out.size())];
        Arrays.fill(poison, (byte) 0x55);
        out.upload(0, poison);
      }
      FloatView input = FloatView.of(on.input, type);
      FloatView residual = FloatView.of(on.residual, type);
      for (int i = 0; i < numbers.size(); i++) {
        input.slice((long) i * hidden, hidden).put(row(numbers.get(i), hidden, rank));
        residual.slice((long) i * hidden, hidden).put(row(numbers.get(i), hidden, -1));
      }
      float[] weights = new float[hidden];
      for (int i = 0; i < hidden; i++) {
        weights[i] = weight(i);
      }
      FloatView.of(on.weight, type).put(weights);
    }

    float round(float value) {
      return switch (type) {
        case FLOAT16 -> HalfFloat.fromFloat16(HalfFloat.toFloat16(value));
        case BFLOAT16 -> HalfFloat.fromBfloat16(HalfFloat.toBfloat16(value));
        default -> value;
      };
    }

    float get(byte[] bytes, int i) {
      ByteBuffer buffer = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN);
      return switch (type) {
        case FLOAT16 -> HalfFloat.fromFloat16(buffer.getShort(2 * i));
        case BFLOAT16 -> HalfFloat.fromBfloat16(buffer.getShort(2 * i));
        default -> buffer.getFloat(4 * i);
      };
    }
  }

  /** Returns a row of a rank; rank -1: the residual. */
  private static float[] row(int number, int hidden, int rank) {
    SplittableRandom random = new SplittableRandom(number * 131L + rank);
    float scale = number % 5 == 4 ? 0.001f : 1 + number % 3;
    float[] row = new float[hidden];
    for (int i = 0; i < hidden; i++) {
      row[i] = number == 3 ? 0 : scale * (float) (random.nextDouble() * 4 - 2);
    }
    return row;
  }

  private static float weight(int i) {
    return 0.5f + i % 7 / 8f;
  }

  /** Does rows of a length by every algorithm that there is for them, on one of the ranks. */
  void check(LocalRank rank, CollectivesOptions options, int hidden, int... rowCounts) {
    int most = Arrays.stream(rowCounts).max().orElseThrow();
    try (Collectives collectives = NearWrap.of(lane(rank, options.withTimeout(LONG)));
        Buffers buffers = Buffers.of(rank.device(), most, hidden)) {
      int turn = 0;
      for (DataType type : FusedAllReduce.TYPES) {
        for (int count : rowCounts) {
          Rows rows = Rows.of(type, hidden, turn++ % 3, count);
          byEachAlgorithm(
              collectives,
              rows.call(buffers, false),
              algorithm -> {
                for (boolean inPlace : new boolean[] {false, true}) {
                  rows.fill(buffers, rank.rank());
                  collectives.run(rows.call(buffers, inPlace)).block(LONG);
                  compare(rows, buffers, inPlace, rank.nRanks(), algorithm);
                }
              });
        }
      }
      rank.awaitAll();
    }
  }

  private void byEachAlgorithm(
      Collectives collectives, CollectiveCall call, Consumer<String> body) {
    for (String algorithm : collectives.algorithmsFor(call)) {
      collectives.prefer(call.collective(), Optional.of(algorithm));
      assertThat(collectives.algorithmFor(call)).isEqualTo(algorithm);
      body.accept(algorithm);
      used.add(algorithm);
    }
    collectives.prefer(call.collective(), Optional.empty());
  }

  private void compare(Rows rows, Buffers on, boolean inPlace, int nRanks, String algorithm) {
    for (int i = 0; i < rows.numbers.size(); i++) {
      int number = rows.numbers.get(i);
      String row = rows.type + " " + rows.hidden + " kind=" + rows.kind + " row=" + number;
      byte[] sum =
          Bytes.of(
              inPlace ? on.residual : on.residualOut, (long) i * rows.rowBytes(), rows.rowBytes());
      byte[] norm =
          Bytes.of(inPlace ? on.input : on.normOut, (long) i * rows.rowBytes(), rows.rowBytes());
      same(row + " sum", sum, algorithm);
      same(row + " norm", norm, algorithm);
      if (results.putIfAbsent(row, sum) == null) {
        checkValues(row, rows, number, nRanks, sum, norm);
      }
      if (rows.kind > 0) {
        byte[] scale =
            rows.kind == 1 ? new byte[0] : Bytes.of(on.scales, (long) i * Float.BYTES, Float.BYTES);
        byte[] quantized = Bytes.of(on.quantized, (long) i * rows.hidden, rows.hidden);
        same(row + " scale", scale, algorithm);
        same(row + " quantised", quantized, algorithm);
        checkQuantized(row, rows, norm, quantized, scale);
      }
    }
  }

  private void same(String what, byte[] bytes, String algorithm) {
    byte[] before = results.putIfAbsent(what, bytes);
    if (before != null) {
      assertThat(Arrays.mismatch(bytes, before)).as("%s by %s", what, algorithm).isEqualTo(-1);
    }
  }

  /** Checks that the sum is exact and the normed row within one rounding. */
  private static void checkValues(
      String what, Rows rows, int number, int nRanks, byte[] sum, byte[] norm) {
    float[] expected = new float[rows.hidden];
    for (int rank = 0; rank < nRanks; rank++) {
      float[] row = row(number, rows.hidden, rank);
      for (int i = 0; i < rows.hidden; i++) {
        float value = rows.round(row[i]);
        expected[i] = rank == 0 ? value : expected[i] + value;
      }
    }
    float[] residual = row(number, rows.hidden, -1);
    double squares = 0;
    for (int i = 0; i < rows.hidden; i++) {
      expected[i] = rows.round(rows.round(expected[i]) + rows.round(residual[i]));
      checkClose(what, "sum", i, rows.get(sum, i), expected[i], 0);
      squares += (double) expected[i] * expected[i];
    }
    double scale = 1 / Math.sqrt(squares / rows.hidden + EPSILON);
    double unit =
        switch (rows.type) {
          case FLOAT32 -> 0x1p-20;
          case FLOAT16 -> 0x1p-10;
          default -> 0x1p-7;
        };
    for (int i = 0; i < rows.hidden; i++) {
      double exact = expected[i] * scale * (rows.round(weight(i)) + rows.bias());
      checkClose(what, "norm", i, rows.get(norm, i), exact, unit * Math.abs(exact) + 0x1p-24);
    }
  }

  private static void checkQuantized(
      String what, Rows rows, byte[] norm, byte[] quantized, byte[] scaleBytes) {
    float scale = STATIC_SCALE;
    if (scaleBytes.length > 0) {
      float largest = 0;
      for (int i = 0; i < quantized.length; i++) {
        largest = Math.max(largest, Math.abs(rows.get(norm, i)));
      }
      scale = ByteBuffer.wrap(scaleBytes).order(ByteOrder.LITTLE_ENDIAN).getFloat();
      assertThat(scale).as(what).isEqualTo(Math.max(largest * (1f / 448), 1f / (512 * 448f)));
    }
    for (int i = 0; i < quantized.length; i++) {
      double wanted = Math.min(448, Math.abs(rows.get(norm, i) / (double) scale));
      double got = Math.abs(Float8.E4M3.toFloat(quantized[i]));
      checkClose(what, "quantised row", i, got, wanted, wanted / 15.9 + 0x1p-10);
    }
  }

  /** Compares without an assertion object for each of millions of elements. */
  private static void checkClose(
      String row, String of, int element, double got, double wanted, double difference) {
    if (!(Math.abs(got - wanted) <= difference)) {
      throw new AssertionError(
          "%s, element %d of the %s is %s, not %s".formatted(row, element, of, got, wanted));
    }
  }
}
