// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.model;

import io.fluxccl.matmul.HostMatrix;

/** A model's weights, by name. */
public interface TensorSource {
  /** Returns whether there is a tensor of that name. */
  boolean has(String name);

  /**
   * Returns some rows of a tensor.
   *
   * @param rows of the whole tensor
   * @param from the first row to return
   * @param count how many to return
   * @return one matrix, or some one below the other if one would be too large for a buffer
   * @throws IllegalArgumentException if there is no tensor of that name and shape
   */
  HostMatrix[] rows(String name, int rows, int cols, int from, int count);

  /** Returns a whole tensor. */
  default HostMatrix[] get(String name, int rows, int cols) {
    return rows(name, rows, cols, 0, rows);
  }
}
