// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.matmul;

import io.fluxccl.DataType;
import io.fluxccl.InvalidUsage;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceHandle;
import io.fluxccl.device.DeviceStream;

/**
 * A matrix of weights on a GPU, arranged for products by {@link PackedProducts}: {@code out = in *
 * weights^T}, with sums of 32 bits. A row of the product depends on that row and on the weights
 * alone, bit by bit.
 */
public interface PackedMatrix {
  /** The form of a product's result. */
  enum Result {
    /** Elements of the type of the weights, row by row. */
    ELEMENTS,
    /** FLOAT32, row by row. */
    FLOATS,
    /**
     * The first half of the outputs are the gates of the other half. With tiles, {@code silu(gate)
     * * other} in tiles, so that the next product multiplies it; without, both as ELEMENTS.
     */
    GATED
  }

  /** Returns the rows of the weights, the width of the product. */
  int outputs();

  /** Returns the columns of the weights, the width of the matrix that they multiply. */
  int inputs();

  /** Returns the type of the weights. */
  DataType type();

  /** Returns the form of the product. */
  Result result();

  /**
   * Enqueues a product: on any stream of the device, also on one that records. Allocates nothing
   * and waits for nothing. For one thread at a time, as all products of one {@link PackedProducts}.
   *
   * @param stream of the device; must be ordered after the products enqueued before
   * @param rows 1 to the most that {@link PackedProducts#of} was given
   * @param in has room for {@link PackedProducts#roomFor} rows, in tiles if there are some
   * @param out receives the {@link Result}; has room for the same number of rows if that is in
   *     tiles
   * @throws InvalidUsage if a buffer is too small, of another device, closed, or not aligned to 16
   *     bytes, or there are too many rows
   */
  void enqueue(DeviceStream stream, int rows, DeviceBuffer in, DeviceBuffer out);

  /**
   * Enqueues a product of ELEMENTS whose reader adds its {@link #parts}, which saves a launch.
   * Otherwise as {@link #enqueue}.
   *
   * @param out receives the product if there are no parts
   */
  void enqueueParts(DeviceStream stream, int rows, DeviceBuffer in, DeviceBuffer out);

  /**
   * Returns the location of the product of {@link #enqueueParts}: the {@code ProductParts} of
   * {@code fluxccl/packed_product.cuh}, or zeros if the product is in its buffer. The next product
   * overwrites it.
   */
  DeviceHandle parts();
}
