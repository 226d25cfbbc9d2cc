// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.matmul;

import io.fluxccl.DataType;
import io.fluxccl.DeviceFailure;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.Text;
import io.fluxccl.concurrent.Lifecycle;
import io.fluxccl.device.cuda.CudaBuffer;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.device.cuda.CudaToolkit;
import java.util.Optional;

/**
 * Products with matrices of weights on a GPU, by NVIDIA's cuBLASLt. The first object searches for
 * this library by the system's loader and in CUDA's folders, or at the path in the environment
 * variable {@code FLUXCCL_CUBLASLT}. Needs FluxCCL's native library.
 *
 * <p>An object has one workspace, so its products must be enqueued in one order: on one stream, or
 * in one lane's pipelines. {@link #plan} is thread-safe. Close it after the last product has been
 * enqueued.
 */
public final class MatrixProducts implements AutoCloseable {
  /** The size that NVIDIA recommends for H100 and H200. */
  private static final long WORKSPACE_BYTES = 32L << 20;

  final CublasLt lt;
  final CudaDevice device;
  final CudaBuffer workspace;
  final Lifecycle lifecycle;
  private final long handle;

  private static final class Library {
    static final CublasLt FOUND;
    static final FluxCclException MISSING;

    static {
      CublasLt found = null;
      FluxCclException missing = null;
      try {
        found = CublasLt.find(new CudaToolkit(System.getenv()));
      } catch (FluxCclException e) {
        missing = e;
      }
      FOUND = found;
      MISSING = missing;
    }
  }

  /**
   * Creates one for a GPU. Blocks for some time, at most a second the first time.
   *
   * @throws DeviceFailure if cuBLASLt or the native library is missing, saying what to install, or
   *     if it refuses
   */
  public MatrixProducts(CudaDevice device) {
    this.lt = requireLibrary();
    this.device = device;
    device.makeCurrent();
    long[] result = new long[1];
    lt.check(CublasLtCalls.create(lt.library, result), "cublasLtCreate");
    this.handle = result[0];
    this.lifecycle = new Lifecycle("matrix products");
    lifecycle.own(
        () -> {
          device.makeCurrent();
          lt.check(CublasLtCalls.destroy(lt.library, handle), "cublasLtDestroy");
        });
    try {
      this.workspace = lifecycle.own(device.allocate(WORKSPACE_BYTES));
    } catch (RuntimeException | Error e) {
      lifecycle.close();
      throw e;
    }
  }

  private static CublasLt requireLibrary() {
    if (Library.MISSING != null) {
      throw Library.MISSING;
    }
    return Library.FOUND;
  }

  /** Returns why this process cannot use cuBLASLt and what to install, or empty. */
  public static Optional<String> unavailableBecause() {
    return Optional.ofNullable(Library.MISSING).map(Throwable::getMessage);
  }

  /** Returns the library's name and version; throws as the constructor does. */
  public static String version() {
    return requireLibrary().version;
  }

  /**
   * Chooses an algorithm for matrices of one shape and loads its kernel, so that no product waits
   * for loading. Blocks for some milliseconds; enqueues nothing.
   *
   * @param outputs rows of the weights, the width of the product
   * @param inputs columns of the weights, the width of the multiplied matrix
   * @param type of weights and inputs: BFLOAT16, FLOAT16 or FLOAT32
   * @param outType of the product: the same, or FLOAT32
   * @param typicalRows the number of rows for which it is to be fastest; any number can be
   *     multiplied
   * @return the plan, which is closed with this object
   * @throws InvalidUsage if a size is less than 1 or a type is another one
   * @throws DeviceFailure if cuBLASLt has no suitable algorithm
   */
  public MatrixProduct plan(
      int outputs, int inputs, DataType type, DataType outType, int typicalRows) {
    if (outputs < 1 || inputs < 1 || typicalRows < 1) {
      throw InvalidUsage.of(
          "plan: outputs=%d, inputs=%d, typicalRows=%d; give 1 or more of each",
          outputs, inputs, typicalRows);
    }
    int cudaType = cudaType(type);
    int cudaOutType = cudaType(outType);
    if (outType != type && outType != DataType.FLOAT32) {
      throw InvalidUsage.of("plan: %s from %s; give the same type, or FLOAT32", outType, type);
    }
    lifecycle.checkOpen();
    device.makeCurrent();
    long[] result = new long[1];
    int status =
        CublasLtCalls.plan(
            lt.library,
            handle,
            cudaType,
            cudaOutType,
            inputs,
            outputs,
            typicalRows,
            WORKSPACE_BYTES,
            result);
    lt.check(
        status,
        Text.of(
            "choosing how to multiply %s rows of %d by %d x %d into %s, typically %d",
            type, inputs, outputs, inputs, outType, typicalRows));
    MatrixProduct product =
        new MatrixProduct(this, result[0], new MatrixProduct.Shape(outputs, inputs, type, outType));
    lifecycle.own(() -> CublasLtCalls.freePlan(result[0]));
    product.load(typicalRows);
    return product;
  }

  /** The number that {@code library_types.h} gives a type. */
  private static int cudaType(DataType type) {
    return switch (type) {
      case FLOAT32 -> 0;
      case FLOAT16 -> 2;
      case BFLOAT16 -> 14;
      default ->
          throw InvalidUsage.of("plan: matrices of %s; give BFLOAT16, FLOAT16 or FLOAT32", type);
    };
  }

  /** Frees the plans at once, and the workspace after the enqueued work is done. Idempotent. */
  @Override
  public void close() {
    lifecycle.close();
  }
}
