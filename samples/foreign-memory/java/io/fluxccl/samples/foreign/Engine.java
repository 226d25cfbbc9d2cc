// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.foreign;

import io.fluxccl.collective.Collectives;
import io.fluxccl.device.DeviceBuffer;

/** An engine as the program sees it: the owner of a tensor of floats and of work on it. */
interface Engine extends AutoCloseable {
  /** Returns the engine's tensor as a buffer that frees nothing. */
  DeviceBuffer wrap();

  /** Returns collectives in the order of the engine's own work. */
  Collectives lane(Collectives collectives);

  /** Sets all floats to a value and all-reduces them, so often. */
  void steps(Collectives lane, DeviceBuffer tensor, float value, int times);

  /** Returns the tensor's floats. */
  float[] read();

  /** Frees the tensor. */
  @Override
  void close();
}
