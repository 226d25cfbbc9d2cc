// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.foreign;

import io.fluxccl.DataType;
import io.fluxccl.ReduceOp;
import io.fluxccl.collective.Collectives;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.host.HostDevice;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;

/** An engine on the host, whose tensor is a direct ByteBuffer. */
final class HostEngine implements Engine {
  private final HostDevice device;
  private final ByteBuffer tensor;

  HostEngine(HostDevice device, int floats) {
    this.device = device;
    // Java's byte order would not be the device's.
    this.tensor = ByteBuffer.allocateDirect(4 * floats).order(ByteOrder.nativeOrder());
  }

  @Override
  public DeviceBuffer wrap() {
    return device.wrap(tensor);
  }

  @Override
  public Collectives lane(Collectives collectives) {
    return collectives.lane("engine").join();
  }

  @Override
  public void steps(Collectives lane, DeviceBuffer wrapped, float value, int times) {
    FloatBuffer floats = tensor.asFloatBuffer();
    for (int step = 0; step < times; step++) {
      for (int i = 0; i < floats.limit(); i++) {
        floats.put(i, value);
      }
      lane.allReduce(wrapped, DataType.FLOAT32, ReduceOp.SUM).block();
    }
  }

  @Override
  public float[] read() {
    float[] floats = new float[tensor.capacity() / 4];
    tensor.asFloatBuffer().get(floats);
    return floats;
  }

  @Override
  public void close() {}
}
