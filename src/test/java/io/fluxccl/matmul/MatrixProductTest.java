// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.matmul;

import static io.fluxccl.DataType.BFLOAT16;
import static io.fluxccl.DataType.FLOAT32;
import static io.fluxccl.testing.FailureAssertions.assertRefused;
import static io.fluxccl.testing.FailureAssertions.assertThrows;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.DataType;
import io.fluxccl.DeviceFailure;
import io.fluxccl.device.DeviceGraph;
import io.fluxccl.device.cuda.CudaBuffer;
import io.fluxccl.device.cuda.CudaToolkit;
import io.fluxccl.testing.EmulatedGpus;
import io.fluxccl.testing.RequiresGpus;
import java.util.Arrays;
import java.util.Map;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Products by cuBLASLt, or by its emulation if kernels are emulated. */
@EmulatedGpus
@RequiresGpus(1)
class MatrixProductTest extends ProductTests {
  private static final int OUTPUTS = 96;
  private static final int INPUTS = 256;
  private static final int ROWS = 40;

  private final float[] in = numbers(1, ROWS * INPUTS);
  private final float[] weights = numbers(2, 512 * INPUTS);
  private MatrixProducts products;

  @BeforeEach
  void open() {
    products = new MatrixProducts(device);
  }

  @AfterEach
  void close() {
    if (products != null) {
      products.close();
    }
  }

  @ParameterizedTest
  @CsvSource({
    "FLOAT32, FLOAT32, 40, 96, 1e-4",
    "BFLOAT16, FLOAT32, 40, 96, 1e-4",
    "BFLOAT16, BFLOAT16, 40, 96, 0.3",
    // cuBLASLt 13.1 proposes an algorithm for this shape with other row counts only.
    "FLOAT32, FLOAT32, 16, 512, 1e-4"
  })
  void shouldProduceIdenticalRowsForAnyRowCount(
      DataType type, DataType outType, int rows, int outputs, float tolerance) throws Exception {
    MatrixProduct product = products.plan(outputs, INPUTS, type, outType, rows);
    CudaBuffer left = upload(type, in);
    CudaBuffer right = upload(type, Arrays.copyOf(weights, outputs * INPUTS));
    float[] expected = new float[rows * outputs];
    for (int i = 0; i < expected.length; i++) {
      expected[i] = dot(in, i / outputs, weights, i % outputs, INPUTS);
    }
    float[] all = new float[0];
    for (int count : new int[] {rows, 7, 1}) {
      CudaBuffer out = device.allocate(outType.bytes((long) count * outputs));
      product.enqueue(stream, count, left, right, out);
      float[] found = download(outType, out);
      all = count == rows ? found : all;
      assertThat(found).as("%d rows", count).isEqualTo(Arrays.copyOf(all, count * outputs));
    }
    assertThat(all).usingComparatorWithPrecision(tolerance).containsExactly(expected);
  }

  @Test
  void shouldRunInARecordedGraph() throws Exception {
    MatrixProduct product = products.plan(OUTPUTS, INPUTS, BFLOAT16, FLOAT32, 1);
    CudaBuffer left = upload(BFLOAT16, in);
    CudaBuffer right = upload(BFLOAT16, Arrays.copyOf(weights, OUTPUTS * INPUTS));
    CudaBuffer out = device.allocate(4L * ROWS * OUTPUTS);
    product.enqueue(stream, ROWS, left, right, out);
    float[] expected = download(FLOAT32, out);
    out.upload(0, new byte[(int) out.size()]);
    try (DeviceGraph graph =
        device.record(
            "products", recording -> product.enqueue(recording, ROWS, left, right, out))) {
      assertThat(download(FLOAT32, out)).containsOnly(0);
      stream.launch(graph);
      assertThat(download(FLOAT32, out)).containsExactly(expected);
    }
  }

  @Test
  void shouldRefuseUnsupportedTypesSizesAndBuffers() {
    assertRefused(() -> products.plan(8, 8, DataType.INT32, DataType.INT32, 1), "INT32");
    assertRefused(
        () -> products.plan(8, 8, FLOAT32, BFLOAT16, 1), "give the same type, or FLOAT32");
    assertRefused(() -> products.plan(8, 0, FLOAT32, FLOAT32, 1), "inputs=0");
    MatrixProduct product = products.plan(8, 8, FLOAT32, FLOAT32, 1);
    CudaBuffer buffer = device.allocate(8 * 8 * 4);
    assertRefused(() -> product.enqueue(stream, 9, buffer, buffer, buffer), "at least 288 bytes");
    CudaBuffer unaligned = buffer.slice(4, 36);
    assertRefused(
        () -> product.enqueue(stream, 1, unaligned, buffer, buffer), "aligned to 16 bytes");
    products.close();
    assertRefused(() -> product.enqueue(stream, 1, buffer, buffer, buffer));
  }

  @Test
  void shouldNameThePackageToInstallIfCublasLtIsMissing() {
    CudaToolkit toolkit =
        new CudaToolkit(Map.of(CublasLt.VARIABLE, "/proc/nowhere/libcublasLt.so"));
    assertThrows(
        DeviceFailure.class,
        () -> CublasLt.find(toolkit),
        "/proc/nowhere/libcublasLt.so",
        "install the CUDA toolkit's cuBLAS",
        "FLUXCCL_CUBLASLT");
  }
}
