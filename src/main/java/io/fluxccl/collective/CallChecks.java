// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.InvalidUsage;
import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceView;

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
    int size = call.type().size();
    requireAlignment(call, rank, "input", call.inputBytes(rank, nRanks), call.input(), size);
    requireAlignment(call, rank, "output", call.outputBytes(rank, nRanks), call.output(), size);
    checkOverlap(call, rank, nRanks);
    if (call instanceof RoutedCall routed) {
      routed.checkRouting(device, topology);
    } else if (call instanceof FusedAllReduce fused) {
      SeparateEpilogue.requireKind(fused, topology);
      long bytes = call.countBytes();
      requireAlignment(call, rank, "input", bytes, call.input(), FusedAllReduce.WORD);
      fused
          .epilogue()
          .check(
              fused,
              (what, buffer, least, alignment) -> {
                checkBuffer(call, device, rank, what, buffer, least);
                requireAlignment(call, rank, what, least, buffer, alignment);
              });
    }
  }

  /** Refuses a buffer of some bytes that does not begin at a multiple of an alignment. */
  private static void requireAlignment(
      CollectiveCall call, int rank, String what, long bytes, DeviceBuffer buffer, int alignment) {
    if (bytes > 0 && buffer.address() % alignment != 0) {
      throw InvalidUsage.of(
          "%s on rank %d: the %s must begin at a multiple of %d bytes; a slice of another buffer"
              + " may not",
          call, rank, what, alignment);
    }
  }

  /**
   * Refuses a null buffer that this rank needs, when the call is given to a lane: so the caller's
   * line is in the stack trace.
   */
  static CollectiveCall requireBuffers(CollectiveCall call, RankTopology topology) {
    InvalidUsage.requireNonNull(call, "collective", "call");
    int nRanks = topology.nRanks();
    int rank = topology.rank();
    boolean noInput = call.input() == null && call.inputBytes(rank, nRanks) > 0;
    if (noInput || call.output() == null && call.outputBytes(rank, nRanks) > 0) {
      throw InvalidUsage.of(
          "%s on rank %d: %s=null; it must not be null", call, rank, noInput ? "input" : "output");
    }
    return call;
  }

  /**
   * Returns the count of a call between whole views.
   *
   * @param input null where only the root has an input
   * @param output null where only the root has an output
   * @throws InvalidUsage if a view that is needed is null, or the views differ in type or do not
   *     fit each other
   */
  static long countOf(
      Collective collective, DeviceView input, DeviceView output, RankTopology topology) {
    boolean mayLackInput = collective.hasInputOnRootOnly() && output != null;
    boolean mayLackOutput = collective.hasOutputOnRootOnly() && input != null;
    if (!mayLackInput) {
      InvalidUsage.requireNonNull(input, collective.label(), "input");
    }
    if (!mayLackOutput) {
      InvalidUsage.requireNonNull(output, collective.label(), "output");
    }
    int in = collective.hasInputShares() ? topology.nRanks() : 1;
    int out = collective.hasOutputShares() ? topology.nRanks() : 1;
    long count = input == null ? output.size() / out : input.size() / in;
    boolean fits =
        (input == null || input.size() == count * in)
            && (output == null || output.size() == count * out)
            && (input == null || output == null || input.type() == output.type());
    if (!fits) {
      throw InvalidUsage.of(
          "%s on rank %d: from %s to %s; give views of the same type, the input of %s and the"
              + " output of %s, for %d ranks",
          collective.label(),
          topology.rank(),
          input,
          output,
          shape(in),
          shape(out),
          topology.nRanks());
    }
    return count;
  }

  /** Refuses views that are no rows of one type, as many in each; the third is a single row. */
  static void requireRows(DeviceView... views) {
    String label = Collective.FUSED_ALL_REDUCE.label();
    for (DeviceView view : views) {
      InvalidUsage.requireNonNull(view, label, "view");
    }
    DeviceView rows = views[0];
    DeviceView row = views[2];
    for (DeviceView view : views) {
      boolean fits = view == row ? rows.size() % row.size() == 0 : view.size() == rows.size();
      if (row.size() == 0 || !fits || view.type() != rows.type()) {
        throw InvalidUsage.of(
            "%s of %s: %s has another type or size; the weight is one row, the others are as many"
                + " rows as the input",
            label, rows, view);
      }
    }
  }

  private static String shape(int shares) {
    return shares == 1 ? "count elements" : "count elements for each rank";
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

  /** Refuses a buffer besides input and output that is missing or unfit. */
  static void requireOther(
      CollectiveCall call, Device device, int rank, String what, DeviceBuffer buffer, long bytes) {
    checkBuffer(call, device, rank, what, buffer, bytes);
    requireWords(call, rank, what, buffer);
  }

  /** Refuses a buffer that does not begin at a multiple of 8 bytes. */
  static void requireWords(CollectiveCall call, int rank, String what, DeviceBuffer buffer) {
    requireAlignment(call, rank, what, buffer.size(), buffer, Long.BYTES);
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
          case FUSED_ALL_REDUCE, ALL_TO_ALL_V, SEND_RECEIVE, DISPATCH, COMBINE, BARRIER -> false;
        };
    if (!isAllowed) {
      throw InvalidUsage.of(
          "%s on rank %d: input and output overlap, the output is %+d bytes from the input; give"
              + " separate buffers, or the in-place layout that CollectiveCall describes",
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
