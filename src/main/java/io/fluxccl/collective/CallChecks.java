package io.fluxccl.collective;

import io.fluxccl.InvalidUsage;
import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceBuffer;

/** Refuses invalid calls before anything is enqueued. Allocates nothing for valid ones. */
final class CallChecks {
  private CallChecks() {}

  static void check(CollectiveCall call, Device device, RankTopology topology) {
    int nRanks = topology.nRanks();
    int rank = topology.rank();
    checkRank(call, rank, "root", call.root(), call.collective().hasRoot(), nRanks);
    checkRank(call, rank, "destination", call.destination(), false, nRanks);
    checkRank(call, rank, "source", call.source(), false, nRanks);
    checkCounts(call, rank, nRanks);
    checkBuffer(call, device, rank, "input", call.input(), call.inputBytes(rank, nRanks));
    checkBuffer(call, device, rank, "output", call.output(), call.outputBytes(rank, nRanks));
    checkOverlap(call, rank, nRanks);
  }

  private static void checkRank(
      CollectiveCall call, int rank, String what, int value, boolean isNeeded, int nRanks) {
    boolean isAbsent = value == CollectiveCall.NO_PEER && !isNeeded;
    if (!isAbsent && (value < 0 || value >= nRanks)) {
      throw InvalidUsage.of("%s on rank %d: %s=%d of %d ranks", call, rank, what, value, nRanks);
    }
  }

  private static void checkCounts(CollectiveCall call, int rank, int nRanks) {
    if (call instanceof AllToAllV counted && counted.countedRanks() != nRanks) {
      throw InvalidUsage.of(
          "%s on rank %d: counts for %d ranks, there are %d",
          call, rank, counted.countedRanks(), nRanks);
    }
    long sent = call.sendBytes(rank, rank);
    long received = call.receiveBytes(rank, rank);
    if (sent != received) {
      throw InvalidUsage.of(
          "%s on rank %d: sends itself %d bytes and expects %d; one call must do both, with as"
              + " many",
          call, rank, sent, received);
    }
  }

  private static void checkBuffer(
      CollectiveCall call, Device device, int rank, String what, DeviceBuffer buffer, long bytes) {
    if (bytes == 0) {
      return;
    }
    if (buffer == null || bytes > buffer.size()) {
      throw InvalidUsage.of(
          "%s on rank %d: the %s takes %d bytes, the buffer has %d",
          call, rank, what, bytes, buffer == null ? 0 : buffer.size());
    }
    if (buffer.isClosed()) {
      throw InvalidUsage.of("%s on rank %d: the %s is closed", call, rank, what);
    }
    if (buffer.device() != device) {
      throw InvalidUsage.of(
          "%s on rank %d: the %s is memory of another device than the communicator's, %s",
          call, rank, what, device.description());
    }
    if (buffer.address() % call.type().size() != 0) {
      throw InvalidUsage.of(
          "%s on rank %d: the %s must begin at a multiple of an element's %d bytes; a slice of"
              + " another buffer may not",
          call, rank, what, call.type().size());
    }
  }

  private static void checkOverlap(CollectiveCall call, int rank, int nRanks) {
    if (!call.isInPlace(rank, nRanks)) {
      return;
    }
    long distance = call.output().address() - call.input().address();
    long share = rank * call.strideBytes();
    boolean isAllowed =
        switch (call.collective()) {
          case ALL_REDUCE, REDUCE, BROADCAST, ALL_TO_ALL -> distance == 0;
          case ALL_GATHER, GATHER -> distance == -share;
          case REDUCE_SCATTER, SCATTER -> distance == share;
          case ALL_TO_ALL_V, SEND_RECEIVE, BARRIER -> false;
        };
    if (!isAllowed) {
      throw InvalidUsage.of(
          "%s on rank %d: input and output overlap, the output begins %d bytes behind the input;"
              + " CollectiveCall says what in place means",
          call, rank, distance);
    }
  }

  /** Returns a size in bytes, which must have room in a long: both factors are 0 or more. */
  static long multiply(Collective collective, long size, long n) {
    if (Math.multiplyHigh(size, n) != 0 || size * n < 0) {
      throw tooLarge(collective, size);
    }
    return size * n;
  }

  static InvalidUsage tooLarge(Collective collective, long size) {
    return InvalidUsage.of(
        "%s of %d: more bytes than there can be; give less", collective.label(), size);
  }
}
