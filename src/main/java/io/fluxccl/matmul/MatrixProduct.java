// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.matmul;

import io.fluxccl.DataType;
import io.fluxccl.DeviceFailure;
import io.fluxccl.InvalidUsage;
import io.fluxccl.Text;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.cuda.CudaBuffer;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.device.cuda.CudaStream;
import java.util.function.Consumer;

/**
 * A plan for products with matrices of one shape: {@code out[rows x outputs] = in[rows x inputs] *
 * weights[outputs x inputs]^T}. All matrices lie row by row, without gaps; sums are of 32 bits.
 *
 * <p>A row of the product depends only on that row and on the weights, bit by bit, not on the
 * number of rows in a product. The algorithm is chosen once and used for any number of rows. In it,
 * one block adds each sum in a fixed order (no split-K).
 */
public final class MatrixProduct {
  /** The alignment of addresses that the plan assumes, in bytes. */
  private static final int ALIGNMENT = 16;

  private final MatrixProducts products;
  private final long plan;
  private final Shape shape;

  /** The shape and the types of a product. */
  record Shape(int outputs, int inputs, DataType type, DataType outType) {
    long weightBytes() {
      return type.bytes((long) outputs * inputs);
    }
  }

  MatrixProduct(MatrixProducts products, long plan, Shape shape) {
    this.products = products;
    this.plan = plan;
    this.shape = shape;
  }

  Shape shape() {
    return shape;
  }

  /** Makes the driver load the kernel now, by a recording that is then discarded. */
  void load(int rows) {
    long any = products.workspace.address();
    KernelArgs used = KernelArgs.of(products.workspace);
    Consumer<DeviceStream> work =
        stream -> multiply((CudaStream) stream, rows, any, any, any, used);
    products.device.record("matrix-product", work).close();
  }

  /**
   * Enqueues a product: on any stream of the device, also on one that records. Allocates no device
   * memory and waits for nothing. For one thread at a time, as all products of one {@link
   * MatrixProducts}.
   *
   * @param stream of the device; must be ordered after the products enqueued before
   * @param rows 1 or more
   * @param in {@code rows * inputs} elements
   * @param weights {@code outputs * inputs} elements
   * @param out {@code rows * outputs} elements; neither of the others
   * @throws InvalidUsage if a buffer is too small, of another device, closed, or not aligned to 16
   *     bytes
   * @throws DeviceFailure if cuBLASLt refuses
   */
  public void enqueue(
      DeviceStream stream, int rows, DeviceBuffer in, DeviceBuffer weights, DeviceBuffer out) {
    if (!(stream instanceof CudaStream target) || target.device() != products.device) {
      throw InvalidUsage.of("%s on %s; give a stream of %s", this, stream, products.device);
    }
    if (rows < 1) {
      throw InvalidUsage.of("%s: rows=%d; give 1 or more", this, rows);
    }
    products.lifecycle.checkOpen();
    long inAddress = require("in", in, shape.type.bytes((long) rows * shape.inputs));
    long weightsAddress = require("weights", weights, shape.weightBytes());
    long outAddress = require("out", out, shape.outType.bytes((long) rows * shape.outputs));
    KernelArgs used = KernelArgs.of(in, weights, out, products.workspace);
    multiply(target, rows, inAddress, weightsAddress, outAddress, used);
  }

  private void multiply(
      CudaStream stream, int rows, long in, long weights, long out, KernelArgs used) {
    long workspace = products.workspace.address();
    int status =
        stream.enqueueKernels(
            used,
            handle -> CublasLtCalls.multiply(plan, rows, in, weights, out, workspace, handle));
    products.lt.check(status, this + " of " + rows + " rows");
  }

  private long require(String what, DeviceBuffer buffer, long bytes) {
    return require(products.device, this, what, buffer, bytes);
  }

  /** Returns the address of a buffer that a product reads or writes, or refuses it. */
  static long require(
      CudaDevice device, Object product, String what, DeviceBuffer buffer, long bytes) {
    if (!(buffer instanceof CudaBuffer known)
        || known.device().index() != device.index()
        || known.isClosed()
        || known.size() < bytes
        || known.address() % ALIGNMENT != 0) {
      throw InvalidUsage.of(
          "%s: %s is %s; give an open buffer of %s of at least %d bytes, aligned to %d bytes",
          product, what, buffer, device, bytes, ALIGNMENT);
    }
    return known.address();
  }

  @Override
  public String toString() {
    return Text.of(
        "MatrixProduct(%s, %d inputs, %d outputs of %s)",
        shape.type, shape.inputs, shape.outputs, shape.outType);
  }
}
