// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.matmul;

import static io.fluxccl.testing.FailureAssertions.assertRefused;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.data.Offset.offset;

import io.fluxccl.DataType;
import io.fluxccl.device.HalfFloat;
import io.fluxccl.device.cuda.CudaBuffer;
import io.fluxccl.device.cuda.CudaStream;
import io.fluxccl.matmul.PackedMatrix.Result;
import io.fluxccl.testing.EmulatedGpus;
import io.fluxccl.testing.RequiresGpus;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;
import java.util.Collections;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/**
 * Products by the library's own kernels on GPUs of compute capability 9.0, elsewhere by cuBLASLt.
 */
@EmulatedGpus
@RequiresGpus(1)
class PackedProductsTest extends ProductTests {
  private static final int OUTPUTS = 192;
  private static final int INPUTS = 512;
  private static final DataType TYPE = DataType.BFLOAT16;

  /** More than one block of 256 rows, or few rows on emulated GPUs, which are slow. */
  private static final int ROWS = EmulatedGpus.HERE ? 20 : 300;

  private final float[] in = numbers(1, ROWS * INPUTS);
  private final float[] weights = numbers(2, OUTPUTS * INPUTS);
  private final HostMatrix whole = matrix(TYPE, weights, OUTPUTS, INPUTS);
  private PackedProducts products;

  @BeforeEach
  void open() {
    products = PackedProducts.of(device, TYPE, ROWS, INPUTS);
  }

  @AfterEach
  void close() {
    System.clearProperty(PackedProducts.PROPERTY);
    if (products != null) {
      products.close();
    }
  }

  /** The index that {@code placeInTiles} of packed_product.cuh returns. */
  private int place(int row, int element, int width) {
    int tileRows = products.tileRows();
    if (tileRows == 0) {
      return row * width + element;
    }
    return (element / 64 * tileRows + row) * 64 + ((element / 8 ^ row) & 7) * 8 + element % 8;
  }

  /** Uploads rows of the input, from one of them on, as a product reads them. */
  private CudaBuffer upload(int first, int rows) {
    ByteBuffer bytes = ByteBuffer.allocate(2 * products.roomFor(rows) * INPUTS);
    bytes.order(ByteOrder.LITTLE_ENDIAN);
    for (int row = 0; row < rows; row++) {
      for (int i = 0; i < INPUTS; i++) {
        short value = HalfFloat.toBfloat16(in[(first + row) * INPUTS + i]);
        bytes.putShort(2 * place(row, i, INPUTS), value);
      }
    }
    CudaBuffer buffer = device.allocate(bytes.capacity());
    buffer.upload(0, bytes);
    return buffer;
  }

  private float expected(int row, int output) {
    return dot(in, row, weights, output, INPUTS);
  }

  private float[] multiply(PackedMatrix matrix, DataType outType, int first, int rows)
      throws Exception {
    CudaBuffer out = device.allocate(outType.bytes((long) rows * matrix.outputs()));
    matrix.enqueue(stream, rows, upload(first, rows), out);
    return download(outType, out);
  }

  /** Returns copies of the weights. With 46, a product has too many tiles for parts. */
  private HostMatrix[] copies(int count) {
    return Collections.nCopies(count, whole).toArray(HostMatrix[]::new);
  }

  @ParameterizedTest
  @CsvSource({"ELEMENTS, 1", "FLOATS, 1", "FLOATS, 46"})
  void shouldProduceIdenticalRowsForAnyRowCount(Result result, int copies) throws Exception {
    PackedMatrix matrix = products.pack(result, copies(copies));
    int outputs = matrix.outputs();
    DataType outType = result == Result.FLOATS ? DataType.FLOAT32 : TYPE;
    float[] all = multiply(matrix, outType, 0, ROWS);
    float[] wanted = new float[ROWS * outputs];
    for (int i = 0; i < wanted.length; i++) {
      float value = expected(i / outputs, i % OUTPUTS);
      wanted[i] = outType == TYPE ? rounded(value) : value;
    }
    assertThat(Arrays.mismatch(all, wanted)).isEqualTo(-1);
    for (int rows : EmulatedGpus.HERE ? new int[] {1, 7} : new int[] {1, 7, 16, 33, 64, 128}) {
      int first = ROWS - rows;
      float[] some = multiply(matrix, outType, first, rows);
      assertThat(Arrays.mismatch(some, Arrays.copyOfRange(all, first * outputs, ROWS * outputs)))
          .as("%d rows", rows)
          .isEqualTo(-1);
    }
  }

  @Test
  void shouldLeaveAProductInPartsThatAddUpToIt() throws Exception {
    PackedMatrix matrix = products.pack(Result.ELEMENTS, whole);
    CudaBuffer out = device.allocate(TYPE.bytes((long) ROWS * OUTPUTS));
    matrix.enqueueParts(stream, ROWS, upload(0, ROWS), out);
    float[] found = download(TYPE, out);
    PackedProducts.Parts parts = (PackedProducts.Parts) matrix.parts();
    assertThat(parts.count() > 0).isEqualTo(products.tileRows() > 0);
    if (parts.count() > 0) {
      CudaBuffer copy = device.allocate(4 * parts.stride() * parts.count());
      ((CudaStream) stream).copyAsync(copy.address(), parts.first(), copy.size());
      float[] sums = download(DataType.FLOAT32, copy);
      for (int i = 0; i < found.length; i++) {
        found[i] = 0;
        for (int part = 0; part < parts.count(); part++) {
          found[i] += sums[(int) (part * parts.stride()) + i];
        }
        found[i] = rounded(found[i]);
      }
    }
    assertThat(found).containsExactly(multiply(matrix, TYPE, 0, ROWS));
  }

  @ParameterizedTest
  @ValueSource(ints = {1, 46})
  void shouldApplyTheGateIfProductsAreTiled(int copies) throws Exception {
    PackedMatrix matrix = products.pack(Result.GATED, copies(copies));
    int outputs = matrix.outputs();
    int width = outputs / 2;
    boolean inTiles = products.tileRows() > 0;
    int room = products.roomFor(ROWS) * (inTiles ? (width + 63) / 64 * 64 : outputs);
    CudaBuffer out = device.allocate(TYPE.bytes(room));
    matrix.enqueue(stream, ROWS, upload(0, ROWS), out);
    float[] found = download(TYPE, out);
    for (int row = 0; row < ROWS; row += 19) {
      for (int i = 0; i < width; i++) {
        float gate = expected(row, i % OUTPUTS);
        float other = expected(row, (width + i) % OUTPUTS);
        if (inTiles) {
          float gated = (float) (gate / (1 + Math.exp(-gate)) * other);
          assertThat(found[place(row, i, width)])
              .as("row %d, unit %d", row, i)
              .isCloseTo(gated, offset(Math.abs(gated) / 100 + 1e-3f));
        } else {
          assertThat(found[row * outputs + i]).isEqualTo(rounded(gate));
          assertThat(found[row * outputs + width + i]).isEqualTo(rounded(other));
        }
      }
    }
  }

  @Test
  void shouldLeaveProductsToCublasIfAsked() throws Exception {
    products.close();
    System.setProperty(PackedProducts.PROPERTY, "false");
    products = PackedProducts.of(device, TYPE, ROWS, INPUTS);
    assertThat(products.tileRows()).isZero();
    assertThat(products.roomFor(3)).isEqualTo(3);
    PackedMatrix matrix = products.pack(Result.FLOATS, whole);
    assertThat(multiply(matrix, DataType.FLOAT32, 2, 1)[5]).isEqualTo(expected(2, 5));
  }

  @Test
  void shouldRefuseRowsOrBuffersThatDoNotFit() {
    PackedMatrix matrix = products.pack(Result.FLOATS, whole);
    CudaBuffer left = upload(0, 1);
    CudaBuffer out = device.allocate(4L * ROWS * OUTPUTS);
    String range = "rows=" + (ROWS + 1) + "; give 1 to " + ROWS;
    assertRefused(() -> matrix.enqueue(stream, ROWS + 1, left, out), range);
    String least = "at least " + 4 * OUTPUTS + " bytes";
    assertRefused(() -> matrix.enqueue(stream, 1, left, out.slice(0, 16)), least);
    assertRefused(() -> products.pack(Result.FLOATS, whole, whole.cols(0, 2)), "of equal width");
    products.close();
    assertRefused(() -> matrix.enqueue(stream, 1, left, out));
  }

  @ParameterizedTest
  @CsvSource({
    "ELEMENTS, 20, 64, 'multiple of 8,'",
    "GATED, 24, 64, 'multiple of 16,'",
    "FLOATS, 1, 96, 'and of 64,'"
  })
  void shouldRefuseSizesThatItsKernelsDoNotSupport(
      Result result, int outputs, int inputs, String remedy) {
    assertRefused(() -> PackedKernels.requireTiles(result, outputs, inputs), remedy);
    PackedKernels.requireTiles(result, 48, 64);
  }

  @ParameterizedTest
  @CsvSource({"3072, 4096, 5", "4096, 2048, 4", "4096, 7168, 4", "64128, 4096, 1", "192, 512, 2"})
  void shouldFillTheGpuWithParts(int outputs, int inputs, int parts) {
    assertThat(PackedKernels.partsOf(outputs, inputs)).isEqualTo(parts);
  }

  @ParameterizedTest
  @CsvSource({"7168, 4096, 2", "14336, 4096, 1", "3584, 4096, 4", "192, 512, 2", "128, 64, 1"})
  void shouldDivideInputsIfTilesAreFew(int outputs, int inputs, int parts) {
    assertThat(PackedKernels.joinedPartsOf(outputs, inputs)).isEqualTo(parts);
  }
}
