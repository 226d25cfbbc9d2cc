// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.DataType;
import io.fluxccl.device.DeviceBuffer;

/** A barrier: no rank completes it before every rank has begun it. */
public record Barrier() implements CollectiveCall {
  @Override
  public Collective collective() {
    return Collective.BARRIER;
  }

  @Override
  public DeviceBuffer input() {
    return null;
  }

  @Override
  public DeviceBuffer output() {
    return null;
  }

  @Override
  public long count() {
    return 0;
  }

  @Override
  public DataType type() {
    return DataType.UINT8;
  }

  @Override
  public String toString() {
    return signature();
  }
}
