// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.DataType;
import io.fluxccl.ReduceOp;
import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.FloatView;
import io.fluxccl.device.HalfFloat;
import io.fluxccl.testkit.LocalRank;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.time.Duration;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Random;
import java.util.SplittableRandom;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

/**
 * Fused all-reduces of rows whose content is a function of a number. The result of a row must be
 * identical on all ranks, by all algorithms, for any row count and at any position.
 */
final class FusedRows {
  static final Duration LONG = Duration.ofSeconds(180);
  private static final float EPSILON = 1e-5f;
  private static final int KINDS = 3;
  private static final float STATIC_SCALE = 0.05f;

  /** Results by type, row length, row number and kind of output. */
  private final Map<String, byte[]> results = new ConcurrentHashMap<>();

  /** Names of the algorithms that ran. */
  final Map<String, Boolean> used = new ConcurrentHashMap<>();

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

  /** Does rows of a length by every algorithm that there is for them, on one of the ranks. */
  void check(LocalRank rank, CollectivesOptions options, int hidden, int... rowCounts) {
    int most = Arrays.stream(rowCounts).max().orElseThrow();
    try (Collectives collectives =
            NearWrap.of(Collectives.create(rank.communicator(), options.withTimeout(LONG)).join());
        Buffers buffers = Buffers.of(rank.device(), most, hidden)) {
      int turn = 0;
      for (DataType type : FusedAllReduce.TYPES) {
        for (int rows : rowCounts) {
          check(collectives, rank, buffers, type, rows, hidden, turn++ % KINDS);
        }
      }
      rank.awaitAll();
    }
  }

  private void check(
      Collectives collectives,
      LocalRank rank,
      Buffers on,
      DataType type,
      int rows,
      int hidden,
      int kind) {
    List<Integer> numbers =
        IntStream.range(0, rows).boxed().collect(Collectors.toCollection(java.util.ArrayList::new));
    Collections.shuffle(numbers, new Random(rows));
    CollectiveCall call = call(on, type, rows, hidden, kind);
    for (String algorithm : collectives.algorithmsFor(call)) {
      collectives.prefer(Collective.FUSED_ALL_REDUCE, Optional.of(algorithm));
      assertThat(collectives.algorithmFor(call)).isEqualTo(algorithm);
      for (boolean inPlace : new boolean[] {false, true}) {
        fill(on, type, numbers, hidden, rank.rank());
        CollectiveCall each = inPlace ? inPlace(on, type, rows, hidden, kind) : call;
        collectives.run(each).block(LONG);
        compare(on, type, numbers, hidden, kind, inPlace, rank.nRanks(), algorithm);
      }
      used.put(algorithm, true);
    }
    collectives.prefer(Collective.FUSED_ALL_REDUCE, Optional.empty());
  }

  private static float bias(int kind) {
    return kind == 1 ? 1 : 0;
  }

  private static CollectiveCall call(Buffers on, DataType type, int rows, int hidden, int kind) {
    return CollectiveCall.fusedAllReduce(
        on.input, rows, hidden, type, norm(on, kind, on.residualOut, on.normOut));
  }

  private static CollectiveCall inPlace(Buffers on, DataType type, int rows, int hidden, int kind) {
    return CollectiveCall.fusedAllReduce(
        on.input, rows, hidden, type, norm(on, kind, on.residual, on.input));
  }

  private static AddRmsNorm norm(Buffers on, int kind, DeviceBuffer residualOut, DeviceBuffer out) {
    AddRmsNorm norm = new AddRmsNorm(on.residual, on.weight, EPSILON, bias(kind), residualOut, out);
    return switch (kind) {
      case 0 -> norm;
      case 1 -> norm.withQuantization(new AddRmsNorm.WithScale(on.quantized, STATIC_SCALE), true);
      default -> norm.withQuantization(new AddRmsNorm.WithRowScales(on.quantized, on.scales), true);
    };
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

  private static void fill(Buffers on, DataType type, List<Integer> numbers, int hidden, int rank) {
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
    FloatView.of(on.weight, type).slice(0, hidden).put(weights);
  }

  private void compare(
      Buffers on,
      DataType type,
      List<Integer> numbers,
      int hidden,
      int kind,
      boolean inPlace,
      int nRanks,
      String algorithm) {
    int size = hidden * type.size();
    byte[] sums = download(inPlace ? on.residual : on.residualOut, numbers.size() * size);
    byte[] norms = download(inPlace ? on.input : on.normOut, numbers.size() * size);
    byte[] quantized = download(on.quantized, numbers.size() * hidden);
    byte[] scales = download(on.scales, numbers.size() * Float.BYTES);
    for (int i = 0; i < numbers.size(); i++) {
      String row = type + " " + hidden + " kind=" + kind + " row=" + numbers.get(i);
      byte[] sum = part(sums, i, size);
      byte[] norm = part(norms, i, size);
      same(row + " sum", sum, algorithm);
      same(row + " norm", norm, algorithm);
      if (results.putIfAbsent(row, sum) == null) {
        checkValues(row, type, numbers.get(i), hidden, bias(kind), nRanks, sum, norm);
      }
      if (kind > 0) {
        byte[] scale = kind == 1 ? new byte[0] : part(scales, i, Float.BYTES);
        same(row + " scale", scale, algorithm);
        same(row + " quantised", part(quantized, i, hidden), algorithm);
        checkQuantized(row, type, norm, part(quantized, i, hidden), scale);
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
      String what,
      DataType type,
      int number,
      int hidden,
      float bias,
      int nRanks,
      byte[] sum,
      byte[] norm) {
    float[] expected = new float[hidden];
    for (int rank = 0; rank < nRanks; rank++) {
      float[] row = row(number, hidden, rank);
      for (int i = 0; i < hidden; i++) {
        float value = round(type, row[i]);
        expected[i] = rank == 0 ? value : expected[i] + value;
      }
    }
    float[] residual = row(number, hidden, -1);
    double squares = 0;
    for (int i = 0; i < hidden; i++) {
      expected[i] = round(type, round(type, expected[i]) + round(type, residual[i]));
      checkClose(what, "sum", i, get(type, sum, i), expected[i], 0);
      squares += (double) expected[i] * expected[i];
    }
    double scale = 1 / Math.sqrt(squares / hidden + EPSILON);
    for (int i = 0; i < hidden; i++) {
      double exact = expected[i] * scale * (round(type, weight(i)) + bias);
      double unit =
          type == DataType.FLOAT32 ? 0x1p-20 : type == DataType.FLOAT16 ? 0x1p-10 : 0x1p-7;
      checkClose(what, "norm", i, get(type, norm, i), exact, unit * Math.abs(exact) + 0x1p-24);
    }
  }

  private static void checkQuantized(
      String what, DataType type, byte[] norm, byte[] quantized, byte[] scaleBytes) {
    float scale = STATIC_SCALE;
    if (scaleBytes.length > 0) {
      float largest = 0;
      for (int i = 0; i < quantized.length; i++) {
        largest = Math.max(largest, Math.abs(get(type, norm, i)));
      }
      scale = ByteBuffer.wrap(scaleBytes).order(ByteOrder.LITTLE_ENDIAN).getFloat();
      assertThat(scale).as(what).isEqualTo(Math.max(largest * (1f / 448), 1f / (512 * 448f)));
    }
    for (int i = 0; i < quantized.length; i++) {
      double wanted = Math.min(448, Math.abs(get(type, norm, i) / (double) scale));
      double got = Math.abs(ofFloat8(quantized[i]));
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

  private static double ofFloat8(byte bits) {
    int exponent = bits >> 3 & 0xf;
    int fraction = bits & 7;
    double magnitude =
        exponent == 0 ? fraction * 0x1p-9 : (8 + fraction) * Math.scalb(1.0, exponent - 10);
    return bits < 0 ? -magnitude : magnitude;
  }

  private static float round(DataType type, float value) {
    return switch (type) {
      case FLOAT16 -> HalfFloat.fromFloat16(HalfFloat.toFloat16(value));
      case BFLOAT16 -> HalfFloat.fromBfloat16(HalfFloat.toBfloat16(value));
      default -> value;
    };
  }

  private static float get(DataType type, byte[] bytes, int i) {
    ByteBuffer buffer = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN);
    return switch (type) {
      case FLOAT16 -> HalfFloat.fromFloat16(buffer.getShort(2 * i));
      case BFLOAT16 -> HalfFloat.fromBfloat16(buffer.getShort(2 * i));
      default -> buffer.getFloat(4 * i);
    };
  }

  private static byte[] part(byte[] bytes, int index, int size) {
    return Arrays.copyOfRange(bytes, index * size, (index + 1) * size);
  }

  private static byte[] download(DeviceBuffer from, int bytes) {
    ByteBuffer buffer = ByteBuffer.allocateDirect(bytes).order(ByteOrder.LITTLE_ENDIAN);
    from.download(0, buffer);
    byte[] result = new byte[bytes];
    buffer.flip().get(result);
    return result;
  }

  /** All-reduces the rows by every plain algorithm; expects equal bits at any position. */
  void checkPlain(LocalRank rank, int hidden, int... rowCounts) {
    int most = Arrays.stream(rowCounts).max().orElseThrow();
    try (Collectives collectives =
            Collectives.create(rank.communicator(), CollectivesOptions.DEFAULT.withTimeout(LONG))
                .join();
        Buffers on = Buffers.of(rank.device(), most, hidden);
        Registration in = collectives.register(on.input).join();
        Registration out = collectives.register(on.residualOut).join()) {
      for (DataType type : FusedAllReduce.TYPES) {
        for (int rows : rowCounts) {
          List<Integer> numbers =
              IntStream.range(0, rows)
                  .boxed()
                  .collect(Collectors.toCollection(java.util.ArrayList::new));
          Collections.shuffle(numbers, new Random(rows));
          fill(on, type, numbers, hidden, rank.rank());
          CollectiveCall call =
              CollectiveCall.allReduce(
                  on.input, on.residualOut, (long) rows * hidden, type, ReduceOp.SUM);
          for (String algorithm : collectives.algorithmsFor(call)) {
            collectives.prefer(Collective.ALL_REDUCE, Optional.of(algorithm));
            collectives.run(call).block(LONG);
            byte[] sums = download(on.residualOut, rows * hidden * type.size());
            for (int i = 0; i < rows; i++) {
              String what = "plain " + type + " " + hidden + " row " + numbers.get(i);
              same(what, part(sums, i, hidden * type.size()), algorithm);
            }
            used.put(algorithm, true);
          }
        }
      }
      rank.awaitAll();
    }
  }
}
