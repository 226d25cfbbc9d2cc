package io.fluxccl.cli;

import io.fluxccl.collective.CollectiveCall;
import io.fluxccl.device.DeviceBuffer;

/**
 * A rank's two buffers, and where in them a case's input and output lie. All ranks give both to
 * every call, also those that have no use for one: what is registered then looks the same to all.
 */
final class CallBuffers {
  private final DeviceBuffer input;
  private final DeviceBuffer output;
  private final int rank;
  private final int nRanks;

  CallBuffers(DeviceBuffer input, DeviceBuffer output, int rank, int nRanks) {
    this.input = input;
    this.output = output;
    this.rank = rank;
    this.nRanks = nRanks;
  }

  DeviceBuffer of(PerfBuffer buffer) {
    return buffer == PerfBuffer.INPUT ? input : output;
  }

  int rank() {
    return rank;
  }

  int nRanks() {
    return nRanks;
  }

  DataLayout layout(PerfCase shape) {
    return new DataLayout(shape, rank, nRanks);
  }

  /** This rank's call of a case. */
  CollectiveCall call(PerfCase shape, Placement placement) {
    DataLayout layout = layout(shape);
    long size = shape.type().size();
    DeviceBuffer holder = placement == Placement.IN_PLACE ? output : input;
    DeviceBuffer in =
        holder.slice(layout.inputOffset(placement) * size, layout.inputExtent() * size);
    DeviceBuffer out =
        output.slice(layout.outputOffset(placement) * size, layout.outputExtent() * size);
    return switch (shape.collective()) {
      case ALL_REDUCE -> CollectiveCall.allReduce(in, out, shape.count(), shape.type(), shape.op());
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
      case BARRIER -> CollectiveCall.barrier();
    };
  }
}
