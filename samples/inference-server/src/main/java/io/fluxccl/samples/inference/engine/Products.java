package io.fluxccl.samples.inference.engine;

import io.fluxccl.DataType;
import io.fluxccl.collective.KernelStruct;
import io.fluxccl.collective.Pipeline;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.device.cuda.CudaKernel;
import io.fluxccl.device.cuda.CudaModule;
import io.fluxccl.device.cuda.CudaStream;
import io.fluxccl.samples.inference.engine.Kernels.Use;
import io.fluxccl.samples.inference.model.LlamaConfig;
import io.fluxccl.samples.inference.model.Tensor;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;

/**
 * Products with weights by {@code hopper/product.cu}, on GPUs of compute capability 9.0. As fast as
 * the weights can be read while there are few rows, and each row's bits are the same in any number
 * of rows: an output's sum is made in an order that only the shape of the weights decides.
 *
 * <p>What is multiplied is in tiles of {@link #tileRows} rows. A product whose inputs are in parts
 * stays as several matrices of sums, which the next kernel adds ({@link #sumsOf}).
 */
final class Products implements AutoCloseable {
  /** System property: {@code true} leaves products to cuBLASLt on any GPU. */
  static final String CUBLAS_PROPERTY = "inference.cublas";

  private static final int CAPABILITY = 90;
  private static final int TILE_OUTPUTS = 128;
  private static final int TILE_INPUTS = 64;
  private static final int LEAST_ROWS = 8;
  private static final int MOST_ROWS = 256;
  private static final int THREADS = 288;
  private static final int SHARED_ALIGNMENT = 1024;

  // How inputs are put in parts: a constant, not the GPU at hand, so that bits are everywhere the
  // same. Parts fill at least 9 of 10 places of as many rounds of blocks as they need.
  private static final int BLOCKS = 132;
  private static final int MOST_PARTS = 8;
  private static final int LEAST_TILES_OF_PART = 4;

  /** No parts: the product is in its buffer. */
  static final KernelStruct NO_SUMS = new KernelStruct(24);

  private final CudaDevice device;
  private final CudaModule module;
  private final int tileRows;
  private final Map<Integer, CudaKernel> kernels = new HashMap<>();
  private final List<DeviceBuffer> buffers = new ArrayList<>();
  private final Map<DeviceBuffer, KernelStruct> sums = new IdentityHashMap<>();
  private final CudaStream loading;

  /** Room for the parts of any product; the next kernel has read them before the next product. */
  private DeviceBuffer parts;

  private long bytesOfParts;

  /**
   * A matrix in tiles, or a gate and an up matrix whose rows take turns. Products that give
   * activations are sums in parts, the others whole: floats, or {@code silu(gate) * up} in tiles.
   */
  record Weights(DeviceBuffer buffer, int outputs, int inputs, int parts, Use use)
      implements Kernels.Weights {}

  /** Creates the products of one rank, by the kernels of a module. */
  Products(CudaDevice device, CudaModule module, int maxRows) {
    this.device = device;
    this.module = module;
    this.loading = device.createStream("weights");
    int columns = (maxRows + MOST_ROWS - 1) / MOST_ROWS;
    this.tileRows = columns == 1 ? rowsOfKernel(maxRows) : columns * MOST_ROWS;
    for (int rows = LEAST_ROWS; rows <= MOST_ROWS; rows *= 2) {
      CudaKernel kernel = module.kernel("product" + rows).withSharedMemory(sharedBytes(rows));
      kernels.put(rows, kernel.overlapping());
    }
  }

  /** Returns whether the GPU has what it takes and the model's parts on a rank fit the tiles. */
  static boolean areFor(CudaDevice device, LlamaConfig config, int nRanks, DataType type) {
    boolean fits =
        Stream.of(config.hidden(), config.heads() * config.headDim(), config.intermediate())
            .allMatch(width -> width / nRanks % TILE_INPUTS == 0);
    return fits
        && device.computeCapability() == CAPABILITY
        && type == DataType.BFLOAT16
        && List.of(32, 64, 128).contains(config.headDim())
        && config.heads() / config.kvHeads() <= 8
        && !Boolean.getBoolean(CUBLAS_PROPERTY);
  }

  private static int rowsOfKernel(int rows) {
    int most = Math.min(MOST_ROWS, Math.max(LEAST_ROWS, rows));
    return most == Integer.highestOneBit(most) ? most : 2 * Integer.highestOneBit(most);
  }

  /**
   * As product.cu counts: the stages that fit a multiprocessor's shared memory, twice up to 128.
   */
  private static int sharedBytes(int rows) {
    int stages =
        switch (rows) {
          case 8 -> 6;
          case 16, 32 -> 5;
          case 128 -> 3;
          default -> 4;
        };
    return SHARED_ALIGNMENT + stages * (TILE_OUTPUTS + rows) * TILE_INPUTS * Short.BYTES;
  }

  private static int partsOf(int outputs, int inputs) {
    int tiles = tiles(outputs);
    int most = Math.min(MOST_PARTS, inputs / TILE_INPUTS / LEAST_TILES_OF_PART);
    for (int parts = 1; parts <= most; parts++) {
      int rounds = (tiles * parts + BLOCKS - 1) / BLOCKS;
      if (10 * tiles * parts >= 9 * BLOCKS * rounds) {
        return parts;
      }
    }
    return Math.max(1, most);
  }

  private static int tiles(int outputs) {
    return (outputs + TILE_OUTPUTS - 1) / TILE_OUTPUTS;
  }

  /** Returns how many rows a tile of activations has. */
  int tileRows() {
    return tileRows;
  }

  /** Loads matrices of equal width, stacked. Blocks until they are there. */
  Weights load(Use use, Tensor... stacked) {
    int outputs = Stream.of(stacked).mapToInt(Tensor::rows).sum();
    int inputs = stacked[0].cols();
    boolean inParts = use == Use.ACTIVATIONS || use == Use.PARTIAL;
    int count = inParts ? partsOf(outputs, inputs) : 1;
    DeviceBuffer packed = device.allocate((long) tiles(outputs) * TILE_OUTPUTS * inputs * 2);
    buffers.add(packed);
    try (DeviceBuffer rows = device.allocate(DataType.BFLOAT16.bytes((long) outputs * inputs))) {
      CudaWeights.upload(DataType.BFLOAT16, rows, stacked);
      int gated = use == Use.GATED ? 1 : 0;
      loading.launch(
          module.kernel("pack"),
          8 * device.multiprocessors(),
          256,
          KernelArgs.of(rows, outputs, inputs, gated, packed));
      loading.completion().join();
    }
    if (inParts) {
      bytesOfParts = Math.max(bytesOfParts, (long) count * tileRows * outputs * Float.BYTES);
    }
    return new Weights(packed, outputs, inputs, count, use);
  }

  /**
   * Adds {@code out = in * weights^T}.
   *
   * @param isWhole whether {@code out} gets a product in parts; if not, {@link #sumsOf} says where
   *     the parts are
   */
  Pipeline multiply(
      Pipeline before,
      int rows,
      DeviceBuffer in,
      Weights weights,
      boolean isWhole,
      DeviceBuffer out) {
    int rowsOfKernel = rowsOfKernel(rows);
    int columns = (rows + rowsOfKernel - 1) / rowsOfKernel;
    int blocks = (rowsOfKernel == MOST_ROWS ? 1 : 2) * device.multiprocessors();
    boolean inParts = weights.use == Use.ACTIVATIONS || weights.use == Use.PARTIAL;
    Pipeline multiplied =
        before.launch(
            kernels.get(rowsOfKernel),
            Math.min(blocks, tiles(weights.outputs) * weights.parts * columns),
            THREADS,
            KernelArgs.of(
                weights.buffer,
                in,
                inParts ? parts() : out,
                weights.outputs,
                weights.inputs,
                rows,
                tileRows,
                weights.parts,
                weights.use == Use.GATED ? 1 : 0));
    sums.remove(out);
    if (!inParts) {
      return multiplied;
    }
    KernelStruct found = sums((long) tileRows * weights.outputs, weights.parts);
    if (!isWhole) {
      sums.put(out, found);
      return multiplied;
    }
    long count = (long) rows * weights.outputs;
    return multiplied.launch(
        module.kernel("addParts").overlapping(),
        Math.toIntExact((count + 1023) / 1024),
        256,
        KernelArgs.of(found, count, out));
  }

  /** Returns where the parts of a product are, or none, as a {@code Sums} of llama.cu. */
  KernelStruct sumsOf(DeviceBuffer out) {
    return sums.getOrDefault(out, NO_SUMS);
  }

  private KernelStruct sums(long stride, int count) {
    return new KernelStruct(24).putLong(parts().address()).putLong(stride).putInt(count);
  }

  /** Allocated at the first product, when all weights are known. */
  private DeviceBuffer parts() {
    if (parts == null) {
      parts = device.allocate(bytesOfParts);
      buffers.add(parts);
    }
    return parts;
  }

  @Override
  public void close() {
    loading.close();
    buffers.forEach(DeviceBuffer::close);
  }
}
