// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.matmul;

import static io.fluxccl.testing.FailureAssertions.assertRefused;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.within;

import io.fluxccl.DataType;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.FloatView;
import io.fluxccl.device.HalfFloat;
import io.fluxccl.device.host.HostDevice;
import java.nio.ByteBuffer;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class HostMatrixTest {
  private static final int ROWS = 6;
  private static final int COLS = 8;

  /** Element (row, col) is 10 row + col + 1/256, which bfloat16 rounds. */
  private static HostMatrix matrix(DataType type) {
    float[] values = new float[ROWS * COLS];
    for (int i = 0; i < values.length; i++) {
      values[i] = 10 * (i / COLS) + i % COLS + 1 / 256f;
    }
    return ProductTests.matrix(type, values, ROWS, COLS);
  }

  private static float rounded(DataType type, float value) {
    return switch (type) {
      case FLOAT32 -> value;
      case FLOAT16 -> HalfFloat.fromFloat16(HalfFloat.toFloat16(value));
      default -> ProductTests.rounded(value);
    };
  }

  private static float[] uploaded(DataType as, int count, HostMatrix... matrices) {
    try (HostDevice device = HostDevice.create();
        DeviceBuffer target = device.allocate(as.bytes(count))) {
      HostMatrix.upload(target, as, matrices);
      return FloatView.of(target, as).toArray();
    }
  }

  @ParameterizedTest
  @CsvSource({
    "FLOAT32, FLOAT32",
    "FLOAT32, FLOAT16",
    "FLOAT32, BFLOAT16",
    "FLOAT16, FLOAT32",
    "FLOAT16, FLOAT16",
    "FLOAT16, BFLOAT16",
    "BFLOAT16, FLOAT32",
    "BFLOAT16, FLOAT16",
    "BFLOAT16, BFLOAT16"
  })
  void shouldUploadPartsConsecutively(DataType type, DataType as) {
    HostMatrix all = matrix(type);
    HostMatrix rows = all.rows(1, 3); // rows 2 and 3
    HostMatrix cols = all.cols(1, 2); // columns 4 to 7
    float[] found = uploaded(as, 2 * COLS + ROWS * 4, rows, cols);
    float[] expected = new float[found.length];
    for (int i = 0; i < expected.length; i++) {
      int row = i < 2 * COLS ? 2 + i / COLS : (i - 2 * COLS) / 4;
      int col = i < 2 * COLS ? i % COLS : 4 + i % 4;
      float value = all.get(row, col);
      expected[i] = rounded(as, value);
    }
    assertThat(found).containsExactly(expected);
    assertThat(found[0]).isCloseTo(20f, within(0.1f));
    assertThat(found[2 * COLS]).isCloseTo(4f, within(0.1f));
  }

  @Test
  void shouldReadPartsOfParts() {
    HostMatrix part = matrix(DataType.FLOAT32).cols(1, 2).rows(1, 2).cols(0, 2);
    assertThat(part.rows()).isEqualTo(3);
    assertThat(part.cols()).isEqualTo(2);
    assertThat(part.get(2, 1)).isEqualTo(55 + 1 / 256f);
  }

  @Test
  void shouldRefuseSharesThatAreNotEqualOrNotThere() {
    HostMatrix matrix = matrix(DataType.FLOAT32);
    assertRefused(() -> matrix.rows(0, 4), "share 0 of 4 of a matrix of 6 rows", "divides");
    assertRefused(() -> matrix.cols(2, 3), "share 2 of 3 of a matrix of 8 columns");
    assertRefused(() -> matrix.rows(0, 2).rows(1, 1), "share 1 of 1 of a matrix of 3 rows");
    assertRefused(() -> matrix.cols(-1, 2), "share -1 of 2");
    assertRefused(() -> matrix.cols(0, 0), "share 0 of 0");
  }

  @Test
  void shouldRefuseMatricesOutsideTheirMemoryOrOfOtherTypes() {
    ByteBuffer data = ByteBuffer.allocate(64);
    assertRefused(
        () -> HostMatrix.of(data, DataType.FLOAT32, 4, 5),
        "4 x 5 FLOAT32, stride=5, first=0, does not lie in 64 bytes");
    assertRefused(() -> new HostMatrix(data, DataType.FLOAT32, 2, 4, 3, 0));
    assertRefused(() -> new HostMatrix(data, DataType.FLOAT32, 2, 4, 4, Long.MAX_VALUE));
    assertRefused(
        () -> HostMatrix.of(data, DataType.INT32, 2, 2), "give BFLOAT16, FLOAT16 or FLOAT32");
    assertRefused(() -> uploaded(DataType.INT64, 4, matrix(DataType.FLOAT32)), "matrix of INT64");
  }
}
