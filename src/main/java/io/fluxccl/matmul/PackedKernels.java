// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.matmul;

import io.fluxccl.DataType;
import io.fluxccl.InvalidUsage;
import io.fluxccl.Text;
import io.fluxccl.concurrent.Lifecycle;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceHandle;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.cuda.CudaBuffer;
import io.fluxccl.device.cuda.CudaCompileOptions;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.device.cuda.CudaKernel;
import io.fluxccl.device.cuda.CudaModule;
import io.fluxccl.device.cuda.CudaStream;
import java.util.HashMap;
import java.util.Map;

/**
 * The kernels of {@code products/packed_product.cu} on one GPU, for compute capability 9.0 and
 * BFLOAT16. The order of an output's sum depends only on the shape of the weights.
 */
final class PackedKernels implements AutoCloseable {
  static final int TILE_INPUTS = 64;

  private static final String SOURCE = "products/packed_product.cu";
  private static final DataType TYPE = DataType.BFLOAT16;
  private static final int TILE_OUTPUTS = 128;
  private static final int LEAST_ROWS = 8;
  private static final int MOST_ROWS = 256;

  /** Rows of the kernel with two blocks per multiprocessor. */
  private static final int ROWS_OF_TWO_BLOCKS = 128;

  private static final int THREADS = 320;
  private static final int SHARED_ALIGNMENT = 1024;

  // Determines the division of inputs into parts. A constant instead of the GPU's number of
  // multiprocessors, so that results have the same bits on all GPUs. Parts fill at least 90 % of
  // the rounds of blocks that they need.
  private static final int BLOCKS = 132;
  private static final int MOST_PARTS = 8;
  private static final int LEAST_TILES_OF_PART = 4;

  /** Parts of a product whose blocks add them; their sums travel through the L2 cache. */
  private static final int MOST_JOINED_PARTS = 4;

  /** Warps that add the parts of a tile. */
  private static final int WARPS = 8;

  // Threads of addParts; each thread adds four elements.
  private static final int ADDERS = 256;
  private static final int ADDED = 4;

  private final CudaDevice device;
  private final CudaModule module;
  private final CudaStream loading;
  private final int maxRows;
  private final int tileRows;
  private final CudaKernel addParts;
  private final Map<Integer, CudaKernel> products = new HashMap<>();

  /** Products whose own blocks add the parts. */
  private final Map<Integer, CudaKernel> joined = new HashMap<>();

  private final Lifecycle lifecycle = new Lifecycle("packed products");

  /** Counts the parts of each tile that are there, for products whose blocks add them. */
  private final CudaBuffer arrivals;

  /** Holds the parts of any product. They are read before the next product starts. */
  private CudaBuffer parts;

  PackedKernels(CudaDevice device, int maxRows) {
    this.device = device;
    this.maxRows = maxRows;
    int columns = (maxRows + MOST_ROWS - 1) / MOST_ROWS;
    this.tileRows = columns == 1 ? rowsOfKernel(maxRows) : columns * MOST_ROWS;
    // Without the letter a, wgmma is not available.
    CudaCompileOptions options = CudaCompileOptions.DEFAULT.withOption("-arch=sm_90a");
    this.module = lifecycle.own(CudaModule.fromJar(SOURCE, options));
    try {
      module.prepare(device);
      this.loading = lifecycle.own(device.createStream("weights"));
      int tiles = BLOCKS / 2 * columns;
      this.arrivals = lifecycle.own(device.allocate((long) tiles * WARPS * Integer.BYTES));
      for (int rows = LEAST_ROWS; rows <= MOST_ROWS; rows *= 2) {
        products.put(rows, kernel("product", rows));
        joined.put(rows, kernel("joined", rows));
      }
    } catch (RuntimeException | Error e) {
      lifecycle.close();
      throw e;
    }
    this.addParts = module.kernel("addParts").overlapping();
  }

  private CudaKernel kernel(String name, int rows) {
    return module
        .kernel(name + rows)
        .withSharedMemory(sharedBytes(rows, Integer.MAX_VALUE))
        .overlapping()
        .prepare(device);
  }

  static int rowsOfKernel(int rows) {
    int most = Math.min(MOST_ROWS, Math.max(LEAST_ROWS, rows));
    return most == Integer.highestOneBit(most) ? most : 2 * Integer.highestOneBit(most);
  }

  /**
   * Returns the shared memory for a block's stages, as packed_product.cu counts them: the number
   * that fits a multiprocessor.
   *
   * @param tiles that the block loads; with fewer tiles than stages it reserves less
   */
  private static int sharedBytes(int rows, int tiles) {
    int stages =
        switch (rows) {
          case 8 -> 13;
          case 16 -> 12;
          case 32 -> 11;
          case 64 -> 9;
          case ROWS_OF_TWO_BLOCKS -> 3;
          default -> 4;
        };
    return SHARED_ALIGNMENT
        + Math.min(stages, tiles) * (TILE_OUTPUTS + rows) * TILE_INPUTS * TYPE.size();
  }

  static int partsOf(int outputs, int inputs) {
    int tiles = tiles(outputs);
    int most = Math.min(MOST_PARTS, inputs / TILE_INPUTS / LEAST_TILES_OF_PART);
    for (int count = 1; count <= most; count++) {
      int rounds = (tiles * count + BLOCKS - 1) / BLOCKS;
      if (10 * tiles * count >= 9 * BLOCKS * rounds) {
        return count;
      }
    }
    return Math.max(1, most);
  }

  /** Returns the number of parts of a product whose blocks add them, if it has few tiles. */
  static int joinedPartsOf(int outputs, int inputs) {
    int most = Math.min(MOST_JOINED_PARTS, inputs / TILE_INPUTS / LEAST_TILES_OF_PART);
    return Math.max(1, Math.min(most, BLOCKS / tiles(outputs)));
  }

  private static int tiles(int outputs) {
    return (outputs + TILE_OUTPUTS - 1) / TILE_OUTPUTS;
  }

  int tileRows() {
    return tileRows;
  }

  /** Refuses sizes that the kernels do not support; 8 gates and their 8 ups take turns. */
  static void requireTiles(PackedMatrix.Result result, int outputs, int inputs) {
    boolean isGated = result == PackedMatrix.Result.GATED;
    int multiple = isGated ? 16 : result == PackedMatrix.Result.FLOATS ? 1 : 8;
    if (inputs % TILE_INPUTS != 0 || outputs % multiple != 0) {
      throw InvalidUsage.of(
          "pack(%s): %d outputs, %d inputs; give a multiple of %d, and of %d, or all widths to"
              + " PackedProducts.of",
          result, outputs, inputs, multiple, TILE_INPUTS);
    }
  }

  /** Loads a matrix, and arranges it in tiles. */
  PackedMatrix pack(PackedMatrix.Result result, int outputs, int inputs, HostMatrix... stacked) {
    boolean isGated = result == PackedMatrix.Result.GATED;
    requireTiles(result, outputs, inputs);
    boolean addsParts = result != PackedMatrix.Result.ELEMENTS;
    int count = addsParts ? joinedPartsOf(outputs, inputs) : partsOf(outputs, inputs);
    CudaBuffer tiled =
        lifecycle.own(device.allocate(TYPE.bytes((long) tiles(outputs) * TILE_OUTPUTS * inputs)));
    try (CudaBuffer rows = device.allocate(TYPE.bytes((long) outputs * inputs))) {
      HostMatrix.upload(rows, TYPE, stacked);
      loading.launch(
          module.kernel("pack"),
          8 * device.multiprocessors(),
          256,
          KernelArgs.of(rows, outputs, inputs, isGated ? 1 : 0, tiled));
      loading.completion().join();
    }
    long width = addsParts ? (long) tiles(outputs) * TILE_OUTPUTS : outputs;
    long bytes = DataType.FLOAT32.bytes(count * tileRows * width);
    if ((!addsParts || count > 1) && (parts == null || parts.size() < bytes)) {
      parts = lifecycle.own(device.allocate(bytes));
    }
    return new Packed(this, result, tiled, outputs, inputs, count);
  }

  /** A matrix in tiles, or a gate's and another matrix with interleaved rows. */
  private record Packed(
      PackedKernels kernels,
      PackedMatrix.Result result,
      CudaBuffer weights,
      int outputs,
      int inputs,
      int count)
      implements PackedMatrix {

    @Override
    public void enqueue(DeviceStream stream, int rows, DeviceBuffer in, DeviceBuffer out) {
      if (result != Result.ELEMENTS) {
        multiply(stream, rows, in, out);
        return;
      }
      kernels.require(this, "out", out, TYPE.bytes((long) rows * outputs));
      enqueueParts(stream, rows, in, out);
      long elements = (long) rows * outputs;
      int blocks = Math.toIntExact((elements + ADDERS * ADDED - 1) / (ADDERS * ADDED));
      stream.launch(kernels.addParts, blocks, ADDERS, KernelArgs.of(parts(), elements, out));
    }

    @Override
    public void enqueueParts(DeviceStream stream, int rows, DeviceBuffer in, DeviceBuffer out) {
      if (result != Result.ELEMENTS) {
        throw InvalidUsage.of("%s in parts; pack it for ELEMENTS", this);
      }
      multiply(stream, rows, in, kernels.parts);
    }

    @Override
    public DataType type() {
      return TYPE;
    }

    @Override
    public DeviceHandle parts() {
      if (result != Result.ELEMENTS) {
        return PackedProducts.NO_PARTS;
      }
      long stride = (long) kernels.tileRows * outputs;
      return new PackedProducts.Parts(kernels.parts.address(), stride, count);
    }

    private void multiply(DeviceStream stream, int rows, DeviceBuffer in, DeviceBuffer out) {
      kernels.lifecycle.checkOpen();
      if (!(stream instanceof CudaStream target)) {
        throw InvalidUsage.of("%s on %s; give a stream of %s", this, stream, kernels.device);
      }
      PackedProducts.requireRows(this, rows, kernels.maxRows);
      kernels.require(this, "in", in, TYPE.bytes((long) kernels.tileRows * inputs));
      kernels.require(
          this,
          "out",
          out,
          switch (result) {
            case FLOATS -> DataType.FLOAT32.bytes((long) rows * outputs);
            case GATED -> TYPE.bytes((long) kernels.tileRows * tilesOfGated() * TILE_INPUTS);
            default -> 0;
          });
      boolean addsParts = result != Result.ELEMENTS && count > 1;
      int rowsOfKernel = rowsOfKernel(rows);
      int columns = (rows + rowsOfKernel - 1) / rowsOfKernel;
      int most = (rowsOfKernel == ROWS_OF_TWO_BLOCKS ? 2 : 1) * kernels.device.multiprocessors();
      int items = tiles(outputs) * count * columns;
      int tiles = (items + most - 1) / most * ((inputs / TILE_INPUTS + count - 1) / count);
      target.launch(
          (addsParts ? kernels.joined : kernels.products).get(rowsOfKernel),
          Math.min(most, items),
          THREADS,
          sharedBytes(rowsOfKernel, tiles),
          KernelArgs.of(
              weights,
              in,
              out,
              outputs,
              inputs,
              rows,
              kernels.tileRows,
              count,
              result == Result.GATED ? 1 : 0,
              addsParts ? kernels.parts.address() : 0L,
              kernels.arrivals));
    }

    private int tilesOfGated() {
      return (outputs / 2 + TILE_INPUTS - 1) / TILE_INPUTS;
    }

    @Override
    public String toString() {
      return Text.of("PackedMatrix(%s, %d inputs, %d outputs)", result, inputs, outputs);
    }
  }

  private void require(PackedMatrix matrix, String what, DeviceBuffer buffer, long bytes) {
    MatrixProduct.require(device, matrix, what, buffer, bytes);
  }

  @Override
  public void close() {
    lifecycle.close();
  }
}
