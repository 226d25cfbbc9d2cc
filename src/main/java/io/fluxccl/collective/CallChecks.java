package io.fluxccl.collective;

import io.fluxccl.InvalidUsage;
import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceBuffer;

/** Refuses calls that can't be right, before anything is enqueued. */
final class CallChecks {
  private CallChecks() {}

  static void check(CollectiveCall call, Device device, RankTopology topology) {
    int nRanks = topology.nRanks();
    int rank = topology.rank();
    checkRank(call, rank, "root", call.root(), call.collective().hasRoot(), nRanks);
    checkRank(call, rank, "destination", call.destination(), false, nRanks);
    checkRank(call, rank, "source", call.source(), false, nRanks);
    checkCounts(call, rank, nRanks);
    check(call, device, rank, "input", call.input(), call.inputBytes(rank, nRanks));
    check(call, device, rank, "output", call.output(), call.outputBytes(rank, nRanks));
    checkOverlap(call, rank, nRanks);
  }

  private static void checkRank(
      CollectiveCall call, int rank, String what, int value, boolean needed, int nRanks) {
    boolean absent = value == CollectiveCall.NO_PEER && !needed;
    if (!absent && (value < 0 || value >= nRanks)) {
      throw new InvalidUsage(
          call + " on rank " + rank + ": " + what + "=" + value + " of " + nRanks + " ranks");
    }
  }

  private static void checkCounts(CollectiveCall call, int rank, int nRanks) {
    if (call instanceof AllToAllV counted && counted.countedRanks() != nRanks) {
      throw new InvalidUsage(
          call
              + " on rank "
              + rank
              + ": counts for "
              + counted.countedRanks()
              + " ranks, there are "
              + nRanks);
    }
    if (call.sendBytes(rank, rank) != call.receiveBytes(rank, rank)) {
      throw new InvalidUsage(
          call
              + " on rank "
              + rank
              + ": sends itself "
              + call.sendBytes(rank, rank)
              + " bytes and expects "
              + call.receiveBytes(rank, rank)
              + "; one call must do both, with as many");
    }
  }

  private static void check(
      CollectiveCall call, Device device, int rank, String what, DeviceBuffer buffer, long bytes) {
    if (bytes == 0) {
      return;
    }
    if (buffer == null || bytes > buffer.size()) {
      throw new InvalidUsage(
          call
              + " on rank "
              + rank
              + ": the "
              + what
              + " takes "
              + bytes
              + " bytes, the buffer has "
              + (buffer == null ? 0 : buffer.size()));
    }
    if (buffer.isClosed()) {
      throw new InvalidUsage(call + " on rank " + rank + ": the " + what + " is closed");
    }
    if (buffer.device() != device) {
      throw new InvalidUsage(
          call
              + " on rank "
              + rank
              + ": the "
              + what
              + " is memory of another device than the communicator's, "
              + device.description());
    }
    if (buffer.address() % call.type().size() != 0) {
      throw new InvalidUsage(
          call
              + " on rank "
              + rank
              + ": the "
              + what
              + " must begin at a multiple of an element's "
              + call.type().size()
              + " bytes; a slice of another buffer may not");
    }
  }

  private static void checkOverlap(CollectiveCall call, int rank, int nRanks) {
    if (!call.isInPlace(rank, nRanks)) {
      return;
    }
    long distance = call.output().address() - call.input().address();
    long part = rank * call.strideBytes();
    boolean allowed =
        switch (call.collective()) {
          case ALL_REDUCE, REDUCE, BROADCAST, ALL_TO_ALL -> distance == 0;
          case ALL_GATHER, GATHER -> distance == -part;
          case REDUCE_SCATTER, SCATTER -> distance == part;
          case ALL_TO_ALL_V, SEND_RECEIVE, BARRIER -> false;
        };
    if (!allowed) {
      throw new InvalidUsage(
          call
              + " on rank "
              + rank
              + ": input and output overlap, the output beginning "
              + distance
              + " bytes behind the input; see CollectiveCall for what in place means");
    }
  }
}
