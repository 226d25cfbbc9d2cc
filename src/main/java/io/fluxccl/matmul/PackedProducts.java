// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.matmul;

import io.fluxccl.DataType;
import io.fluxccl.DeviceFailure;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.concurrent.Lifecycle;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceHandle;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.cuda.CudaBuffer;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.device.cuda.CudaKernel;
import java.nio.ByteOrder;
import java.util.HashMap;
import java.util.Map;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.agrona.MutableDirectBuffer;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Products with matrices of weights that stay on a GPU. On GPUs of compute capability 9.0 (H100,
 * H200), FluxCCL's own kernels multiply BFLOAT16. With few rows they take as long as reading the
 * weights. cuBLASLt, with one algorithm for any number of rows, is slower. The kernels need a
 * compiler (NVRTC or nvcc) at the first use, and widths that are multiples of 64. In all other
 * cases, and if {@link #PROPERTY} is false, {@link MatrixProducts} multiplies.
 *
 * <p>FluxCCL's kernels read the multiplied matrix in tiles, which the previous kernel writes
 * ({@code placeInTiles} of {@code fluxccl/packed_product.cuh}, for {@link #tileRows}). If both
 * kernels are {@linkplain CudaKernel#overlapping overlapping}, they prefetch weights while the
 * previous launch runs. They then occupy whole multiprocessors, so enqueue them after the
 * collectives of only one lane at a time. After collectives of two lanes, each product could occupy
 * multiprocessors that the other lane's collective needs.
 *
 * <p>{@link #pack} all matrices before products are enqueued. One thread at a time may do either.
 * Close it after the last product has been enqueued.
 */
public final class PackedProducts implements AutoCloseable {
  /** System property: {@code false} leaves products to cuBLASLt on any GPU. */
  public static final String PROPERTY = "fluxccl.packedProducts";

  private static final Logger LOG = LoggerFactory.getLogger(PackedProducts.class);
  private static final int CAPABILITY = 90;
  private static final int TYPICAL_ROWS = 64;

  /** No parts: the product is in its buffer. */
  static final DeviceHandle NO_PARTS = new Parts(0, 0, 0);

  private final CudaDevice device;
  private final DataType type;
  private final int maxRows;
  private final Lifecycle lifecycle = new Lifecycle("packed products");

  /** One of the two is null. */
  private final PackedKernels kernels;

  private final MatrixProducts cublas;
  private final Map<String, MatrixProduct> plans = new HashMap<>();

  private PackedProducts(CudaDevice device, DataType type, int maxRows, PackedKernels kernels) {
    this.device = device;
    this.type = type;
    this.maxRows = maxRows;
    this.kernels = kernels;
    this.cublas = kernels == null ? lifecycle.own(new MatrixProducts(device)) : null;
    if (kernels != null) {
      lifecycle.own(kernels);
    }
  }

  /**
   * Creates the products of a GPU. May compile kernels, which takes seconds the first time on a
   * machine.
   *
   * @param type of weights and activations: BFLOAT16, FLOAT16 or FLOAT32
   * @param maxRows the most rows of a product
   * @param inputs the widths of what will be multiplied; tiles need multiples of 64
   * @throws DeviceFailure if it needs cuBLASLt and that is missing
   */
  public static PackedProducts of(CudaDevice device, DataType type, int maxRows, int... inputs) {
    if (maxRows < 1) {
      throw InvalidUsage.of("packed products: maxRows=%d; give 1 or more", maxRows);
    }
    boolean isOwn =
        device.computeCapability() == CAPABILITY
            && type == DataType.BFLOAT16
            && IntStream.of(inputs).allMatch(width -> width % PackedKernels.TILE_INPUTS == 0)
            && !"false".equals(System.getProperty(PROPERTY));
    return new PackedProducts(device, type, maxRows, isOwn ? kernels(device, maxRows) : null);
  }

  private static PackedKernels kernels(CudaDevice device, int maxRows) {
    try {
      return new PackedKernels(device, maxRows);
    } catch (FluxCclException e) { // no compiler, or one that does not know these instructions
      LOG.warn("cuBLASLt multiplies on {}, slower for few rows: {}", device, e.getMessage());
      return null;
    }
  }

  /** Returns the rows of a tile of the multiplied matrix, or 0 if the matrix has no tiles. */
  public int tileRows() {
    return kernels == null ? 0 : kernels.tileRows();
  }

  /**
   * Returns the number of rows that the input buffer of a product of {@code rows} rows must have
   * room for.
   */
  public int roomFor(int rows) {
    return kernels == null ? rows : kernels.tileRows();
  }

  /**
   * Loads matrices of equal width, one below the other, and returns when they are on the GPU.
   *
   * @return the matrix, which is closed with this object
   * @throws InvalidUsage if the widths differ, or do not fit what {@link #of} was given
   */
  public PackedMatrix pack(PackedMatrix.Result result, HostMatrix... stacked) {
    lifecycle.checkOpen();
    int outputs = Stream.of(stacked).mapToInt(HostMatrix::rows).sum();
    int inputs = stacked.length == 0 ? 0 : stacked[0].cols();
    if (inputs == 0 || Stream.of(stacked).anyMatch(matrix -> matrix.cols() != inputs)) {
      throw InvalidUsage.of("pack: %d matrices; give one or more of equal width", stacked.length);
    }
    if (outputs % 2 != 0 && result == PackedMatrix.Result.GATED) {
      throw InvalidUsage.of("pack: %d outputs; give as many gates as others", outputs);
    }
    if (kernels != null) {
      return kernels.pack(result, outputs, inputs, stacked);
    }
    boolean floats = result == PackedMatrix.Result.FLOATS;
    DataType outType = floats ? DataType.FLOAT32 : type;
    MatrixProduct product =
        plans.computeIfAbsent(
            outputs + " " + inputs + " " + outType,
            shape -> cublas.plan(outputs, inputs, type, outType, Math.min(maxRows, TYPICAL_ROWS)));
    CudaBuffer weights = lifecycle.own(device.allocate(type.bytes((long) outputs * inputs)));
    HostMatrix.upload(weights, type, stacked);
    return new Plain(product, result, weights, maxRows);
  }

  /** Refuses a number of rows that is not 1 to {@code maxRows}. */
  static void requireRows(Object product, int rows, int maxRows) {
    if (rows < 1 || rows > maxRows) {
      throw InvalidUsage.of("%s: rows=%d; give 1 to %d", product, rows, maxRows);
    }
  }

  /** A matrix by which cuBLASLt multiplies. */
  private record Plain(MatrixProduct product, Result result, CudaBuffer weights, int maxRows)
      implements PackedMatrix {
    @Override
    public int outputs() {
      return product.shape().outputs();
    }

    @Override
    public int inputs() {
      return product.shape().inputs();
    }

    @Override
    public DataType type() {
      return product.shape().type();
    }

    @Override
    public void enqueue(DeviceStream stream, int rows, DeviceBuffer in, DeviceBuffer out) {
      requireRows(product, rows, maxRows);
      product.enqueue(stream, rows, in, weights, out);
    }

    @Override
    public void enqueueParts(DeviceStream stream, int rows, DeviceBuffer in, DeviceBuffer out) {
      enqueue(stream, rows, in, out);
    }

    @Override
    public DeviceHandle parts() {
      return NO_PARTS;
    }
  }

  /**
   * The {@code ProductParts} of packed_product.cuh.
   *
   * @param first the address of the first part's matrix of floats
   * @param stride elements to the next part's matrix
   * @param count how many parts
   */
  record Parts(long first, long stride, int count) implements DeviceHandle {
    private static final int LENGTH = 24;

    @Override
    public int handleLength() {
      return LENGTH;
    }

    @Override
    public void writeHandle(MutableDirectBuffer target, int offset) {
      target.putLong(offset, first, ByteOrder.LITTLE_ENDIAN);
      target.putLong(offset + 8, stride, ByteOrder.LITTLE_ENDIAN);
      target.putLong(offset + 16, count, ByteOrder.LITTLE_ENDIAN);
    }
  }

  /** Frees the weights after the enqueued work is done. Idempotent. */
  @Override
  public void close() {
    lifecycle.close();
  }
}
