// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.matmul;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.fluxccl.DataType;
import io.fluxccl.DeviceFailure;
import io.fluxccl.InvalidUsage;
import io.fluxccl.device.DeviceGraph;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.cuda.CudaBuffer;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.device.cuda.CudaToolkit;
import io.fluxccl.testing.EmulatedGpus;
import io.fluxccl.testing.RequiresGpus;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Products by cuBLASLt, or by its emulation if kernels are emulated. */
@EmulatedGpus
@RequiresGpus(1)
@Timeout(120)
class MatrixProductTest {
  private static final int OUTPUTS = 96;
  private static final int INPUTS = 256;
  private static final int ROWS = 40;

  private final Random random = new Random(1);
  private final float[] in = numbers(ROWS * INPUTS);
  private final float[] weights = numbers(OUTPUTS * INPUTS);
  private CudaDevice device;
  private DeviceStream stream;
  private MatrixProducts products;

  /** Returns numbers that a bfloat16 represents exactly. */
  private float[] numbers(int count) {
    float[] numbers = new float[count];
    for (int i = 0; i < count; i++) {
      numbers[i] = random.nextInt(33) / 16f - 1;
    }
    return numbers;
  }

  @BeforeEach
  void open() {
    String problem = MatrixProducts.unavailableBecause().orElse("");
    assumeTrue(problem.isEmpty(), problem);
    device = CudaDevice.open(0);
    stream = device.createStream("products");
    products = new MatrixProducts(device);
  }

  @AfterEach
  void close() {
    if (device != null) {
      products.close();
      device.close();
    }
  }

  private CudaBuffer upload(DataType type, float[] values) {
    ByteBuffer bytes = ByteBuffer.allocate((int) type.bytes(values.length));
    bytes.order(ByteOrder.LITTLE_ENDIAN);
    for (float value : values) {
      if (type == DataType.FLOAT32) {
        bytes.putFloat(value);
      } else {
        bytes.putShort((short) (Float.floatToRawIntBits(value) >>> 16));
      }
    }
    CudaBuffer buffer = device.allocate(bytes.capacity());
    buffer.upload(0, bytes.flip());
    return buffer;
  }

  private static float[] download(DataType type, CudaBuffer buffer) {
    ByteBuffer bytes = ByteBuffer.allocate((int) buffer.size()).order(ByteOrder.LITTLE_ENDIAN);
    buffer.download(0, bytes);
    float[] values = new float[bytes.flip().remaining() / type.size()];
    for (int i = 0; i < values.length; i++) {
      values[i] =
          type == DataType.FLOAT32
              ? bytes.getFloat()
              : Float.intBitsToFloat(bytes.getShort() << 16);
    }
    return values;
  }

  private void await() throws Exception {
    stream.completion().get(60, TimeUnit.SECONDS);
  }

  @ParameterizedTest
  @CsvSource({"FLOAT32, FLOAT32, 1e-4", "BFLOAT16, FLOAT32, 1e-4", "BFLOAT16, BFLOAT16, 0.3"})
  void shouldProduceIdenticalRowsForAnyRowCount(DataType type, DataType outType, float tolerance)
      throws Exception {
    MatrixProduct product = products.plan(OUTPUTS, INPUTS, type, outType, ROWS);
    CudaBuffer left = upload(type, in);
    CudaBuffer right = upload(type, weights);
    CudaBuffer all = device.allocate(outType.bytes((long) ROWS * OUTPUTS));
    product.enqueue(stream, ROWS, left, right, all);
    CudaBuffer some = device.allocate(outType.bytes(7L * OUTPUTS));
    product.enqueue(stream, 7, left, right, some);
    CudaBuffer one = device.allocate(outType.bytes(OUTPUTS));
    product.enqueue(stream, 1, left, right, one);
    await();
    float[] expected = new float[ROWS * OUTPUTS];
    for (int i = 0; i < expected.length; i++) {
      for (int j = 0; j < INPUTS; j++) {
        expected[i] += in[i / OUTPUTS * INPUTS + j] * weights[i % OUTPUTS * INPUTS + j];
      }
    }
    float[] found = download(outType, all);
    assertThat(found).usingComparatorWithPrecision(tolerance).containsExactly(expected);
    assertThat(download(outType, some)).containsExactly(Arrays.copyOf(found, 7 * OUTPUTS));
    assertThat(download(outType, one)).containsExactly(Arrays.copyOf(found, OUTPUTS));
  }

  /** cuBLASLt 13.1 proposes no usable algorithm for this shape with 16 rows. */
  @Test
  void shouldUseAlgorithmsProposedForOtherRowCounts() throws Exception {
    int outputs = 512;
    int rows = 16;
    MatrixProduct product =
        products.plan(outputs, INPUTS, DataType.FLOAT32, DataType.FLOAT32, rows);
    CudaBuffer left = upload(DataType.FLOAT32, numbers(rows * INPUTS));
    CudaBuffer right = upload(DataType.FLOAT32, numbers(outputs * INPUTS));
    CudaBuffer all = device.allocate(4L * rows * outputs);
    CudaBuffer one = device.allocate(4L * outputs);
    product.enqueue(stream, rows, left, right, all);
    product.enqueue(stream, 1, left, right, one);
    await();
    assertThat(download(DataType.FLOAT32, one))
        .containsExactly(Arrays.copyOf(download(DataType.FLOAT32, all), outputs));
  }

  @Test
  void shouldRunInARecordedGraph() throws Exception {
    MatrixProduct product = products.plan(OUTPUTS, INPUTS, DataType.BFLOAT16, DataType.FLOAT32, 1);
    CudaBuffer left = upload(DataType.BFLOAT16, in);
    CudaBuffer right = upload(DataType.BFLOAT16, weights);
    CudaBuffer out = device.allocate(4L * ROWS * OUTPUTS);
    product.enqueue(stream, ROWS, left, right, out);
    await();
    float[] expected = download(DataType.FLOAT32, out);
    out.upload(0, new byte[(int) out.size()]);
    try (DeviceGraph graph =
        device.record(
            "products", recording -> product.enqueue(recording, ROWS, left, right, out))) {
      await();
      assertThat(download(DataType.FLOAT32, out)).containsOnly(0);
      stream.launch(graph);
      await();
    }
    assertThat(download(DataType.FLOAT32, out)).containsExactly(expected);
  }

  @Test
  void shouldRefuseUnsupportedTypesSizesAndBuffers() {
    assertThatThrownBy(() -> products.plan(8, 8, DataType.INT32, DataType.INT32, 1))
        .isInstanceOf(InvalidUsage.class)
        .hasMessageContaining("INT32");
    assertThatThrownBy(() -> products.plan(8, 8, DataType.FLOAT32, DataType.BFLOAT16, 1))
        .isInstanceOf(InvalidUsage.class)
        .hasMessageContaining("give the same type, or FLOAT32");
    assertThatThrownBy(() -> products.plan(8, 0, DataType.FLOAT32, DataType.FLOAT32, 1))
        .isInstanceOf(InvalidUsage.class)
        .hasMessageContaining("inputs=0");
    MatrixProduct product = products.plan(8, 8, DataType.FLOAT32, DataType.FLOAT32, 1);
    CudaBuffer buffer = device.allocate(8 * 8 * 4);
    assertThatThrownBy(() -> product.enqueue(stream, 9, buffer, buffer, buffer))
        .isInstanceOf(InvalidUsage.class)
        .hasMessageContaining("at least 288 bytes");
    assertThatThrownBy(() -> product.enqueue(stream, 1, buffer.slice(4, 36), buffer, buffer))
        .isInstanceOf(InvalidUsage.class)
        .hasMessageContaining("aligned to 16 bytes");
    products.close();
    assertThatThrownBy(() -> product.enqueue(stream, 1, buffer, buffer, buffer))
        .isInstanceOf(InvalidUsage.class);
  }

  @Test
  void shouldNameThePackageToInstallIfCublasLtIsMissing() {
    CudaToolkit toolkit =
        new CudaToolkit(Map.of(CublasLt.VARIABLE, "/proc/nowhere/libcublasLt.so"));
    assertThatThrownBy(() -> CublasLt.find(toolkit))
        .isInstanceOf(DeviceFailure.class)
        .hasMessageContaining("/proc/nowhere/libcublasLt.so")
        .hasMessageContaining("install the CUDA toolkit's cuBLAS")
        .hasMessageContaining("FLUXCCL_CUBLASLT");
  }
}
