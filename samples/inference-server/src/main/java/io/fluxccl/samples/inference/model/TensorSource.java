// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.model;

import io.fluxccl.matmul.HostMatrix;

/** A model's weights, by name. */
public interface TensorSource {
  /**
   * Returns a tensor.
   *
   * @throws IllegalArgumentException if there is none of that name and shape
   */
  HostMatrix get(String name, int rows, int cols);
}
