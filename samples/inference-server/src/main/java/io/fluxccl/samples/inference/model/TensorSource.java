package io.fluxccl.samples.inference.model;

/** A model's weights, by name. */
public interface TensorSource {
  /**
   * Returns a tensor.
   *
   * @throws IllegalArgumentException if there is none of that name and shape
   */
  Tensor get(String name, int rows, int cols);
}
