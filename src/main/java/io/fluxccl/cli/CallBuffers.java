// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import io.fluxccl.collective.AddRmsNorm;
import io.fluxccl.collective.Collective;
import io.fluxccl.collective.CollectiveCall;
import io.fluxccl.collective.Combine;
import io.fluxccl.collective.Dispatch;
import io.fluxccl.collective.ExpertBatch;
import io.fluxccl.collective.ExpertShape;
import io.fluxccl.concurrent.Lifecycle;
import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceBuffer;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.HashMap;
import java.util.Map;
import java.util.function.Supplier;

/**
 * The two buffers of a rank. All ranks give both to every call, even if the call uses only one, so
 * that registrations look the same on all ranks.
 *
 * @param input holds the input of calls out of place
 * @param output holds everything else
 * @param zeros returns a buffer of zeros, as long as each of the two, which fused all-reduces read
 * @param experts makes the calls of a mixture of experts
 * @param rank this rank
 * @param nRanks how many ranks there are
 */
record CallBuffers(
    DeviceBuffer input,
    DeviceBuffer output,
    Supplier<DeviceBuffer> zeros,
    ExpertCalls experts,
    int rank,
    int nRanks) {
  /** Returns the same with two other buffers. */
  CallBuffers at(DeviceBuffer otherInput, DeviceBuffer otherOutput) {
    return new CallBuffers(otherInput, otherOutput, zeros, experts, rank, nRanks);
  }

  /** Returns one of the buffers. */
  DeviceBuffer of(PerfRank.Buffer buffer) {
    return buffer == PerfRank.Buffer.INPUT ? input : output;
  }

  /** Returns this rank's call of a case. */
  CollectiveCall call(PerfCase shape, BufferAliasing placement) {
    DataLayout layout = new DataLayout(shape, rank, nRanks);
    long size = shape.type().size();
    DeviceBuffer holder = placement == BufferAliasing.IN_PLACE ? output : input;
    DeviceBuffer in =
        holder.slice(layout.inputOffset(placement) * size, layout.inputExtent() * size);
    DeviceBuffer out =
        output.slice(layout.outputOffset(placement) * size, layout.outputExtent() * size);
    return switch (shape.collective()) {
      case ALL_REDUCE -> CollectiveCall.allReduce(in, out, shape.count(), shape.type(), shape.op());
      case FUSED_ALL_REDUCE -> fused(shape);
      case ALL_GATHER -> CollectiveCall.allGather(in, out, shape.count(), shape.type());
      case REDUCE_SCATTER ->
          CollectiveCall.reduceScatter(in, out, shape.count(), shape.type(), shape.op());
      case BROADCAST ->
          CollectiveCall.broadcast(in, out, shape.count(), shape.type(), shape.root());
      case REDUCE ->
          CollectiveCall.reduce(in, out, shape.count(), shape.type(), shape.op(), shape.root());
      case ALL_TO_ALL -> CollectiveCall.allToAll(in, out, shape.count(), shape.type());
      case ALL_TO_ALL_V ->
          CollectiveCall.allToAllv(in, layout.counts(), out, layout.counts(), shape.type());
      case GATHER -> CollectiveCall.gather(in, out, shape.count(), shape.type(), shape.root());
      case SCATTER -> CollectiveCall.scatter(in, out, shape.count(), shape.type(), shape.root());
      case SEND_RECEIVE ->
          CollectiveCall.sendReceive(
              in,
              shape.count(),
              layout.destination(),
              out,
              shape.count(),
              layout.source(),
              shape.type());
      case DISPATCH, COMBINE -> experts.call(shape, in, out, rank, nRanks);
      case BARRIER -> CollectiveCall.barrier();
    };
  }

  /**
   * Returns a call in place: adding a residual of zeros leaves the sum, which is checked. Weights
   * are zeros and a bias of 1, and the normed rows go to the other buffer.
   */
  private CollectiveCall fused(PerfCase shape) {
    DeviceBuffer none = zeros.get();
    AddRmsNorm norm = new AddRmsNorm(none, none, 1e-5f, 1, output, input);
    long rows = shape.count() / shape.hidden();
    return CollectiveCall.fusedAllReduce(output, rows, shape.hidden(), shape.type(), norm);
  }

  /** The calls of an {@link ExpertLayout} on a rank, with the buffers of their routing. */
  static final class ExpertCalls implements AutoCloseable {
    private final Device device;
    private final Map<ExpertShape, Buffers> buffers = new HashMap<>();
    private final Lifecycle lifecycle = new Lifecycle("the calls of experts");

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
      ExpertBatch batch = lifecycle.own(ExpertBatch.allocate(device, shape, layout.nRanks()));
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
          bytes == 0 ? null : lifecycle.own(device.allocate((long) shape.tokens() * bytes)),
          bytes == 0 ? null : lifecycle.own(device.allocate((long) shape.capacity() * bytes)));
    }

    private static ByteBuffer words(int count) {
      return ByteBuffer.allocateDirect(count * Integer.BYTES).order(ByteOrder.LITTLE_ENDIAN);
    }

    @Override
    public void close() {
      lifecycle.close();
    }
  }
}
