// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import io.fluxccl.collective.Collective;
import io.fluxccl.collective.CollectiveCall;
import io.fluxccl.collective.Combine;
import io.fluxccl.collective.Dispatch;
import io.fluxccl.collective.ExpertBatch;
import io.fluxccl.collective.ExpertShape;
import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceBuffer;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.HashMap;
import java.util.Map;

/** The calls of an {@link ExpertLayout} on a rank, with the buffers of their routing. */
final class ExpertCalls implements AutoCloseable {
  private final Device device;
  private final Map<ExpertShape, Buffers> buffers = new HashMap<>();

  ExpertCalls(Device device) {
    this.device = device;
  }

  private record Buffers(ExpertBatch batch, DeviceBuffer scales, DeviceBuffer outputScales) {}

  /** Returns the call of a case. */
  CollectiveCall call(PerfCase shape, DeviceBuffer in, DeviceBuffer out, int rank, int nRanks) {
    ExpertLayout layout = ExpertLayout.of(shape, nRanks);
    Buffers with =
        buffers.computeIfAbsent(layout.shape(shape.type()), s -> prepare(s, layout, rank));
    return shape.collective() == Collective.COMBINE
        ? new Combine(with.batch(), in, null, out)
        : new Dispatch(with.batch(), in, with.scales(), out, with.outputScales());
  }

  private Buffers prepare(ExpertShape shape, ExpertLayout layout, int rank) {
    ExpertBatch batch = ExpertBatch.allocate(device, shape, layout.nRanks());
    ByteBuffer ids = words(shape.tokens() * shape.topK());
    ByteBuffer weights = words(shape.tokens() * shape.topK());
    for (int token = 0; token < shape.tokens(); token++) {
      for (int id : layout.expertsOf(rank, token)) {
        ids.putInt(id);
        weights.putFloat(1f / shape.topK());
      }
    }
    ByteBuffer plan = words(layout.plan(rank).length);
    plan.asIntBuffer().put(layout.plan(rank));
    batch.ids().upload(0, ids.flip());
    batch.weights().upload(0, weights.flip());
    batch.plan().upload(0, plan);
    int bytes = shape.scaleBytes();
    return new Buffers(
        batch,
        bytes == 0 ? null : device.allocate((long) shape.tokens() * bytes),
        bytes == 0 ? null : device.allocate((long) shape.capacity() * bytes));
  }

  private static ByteBuffer words(int count) {
    return ByteBuffer.allocateDirect(count * Integer.BYTES).order(ByteOrder.LITTLE_ENDIAN);
  }

  @Override
  public void close() {
    for (Buffers each : buffers.values()) {
      each.batch().close();
      if (each.scales() != null) {
        each.scales().close();
        each.outputScales().close();
      }
    }
    buffers.clear();
  }
}
