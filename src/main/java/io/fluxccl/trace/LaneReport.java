// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.trace;

import io.fluxccl.wire.WireReader;
import io.fluxccl.wire.WireWriter;
import java.util.Comparator;

/**
 * The progress of a rank on a lane. Collectives of all ranks are numbered from 1, alike on every
 * rank.
 *
 * @param tag of the lane, the same on every rank
 * @param enqueued the number of the last collective that was enqueued; 0 before the first
 * @param done the number of the last one that is done
 * @param inFlight how many calls are in flight; a pipeline is one
 */
public record LaneReport(int tag, long enqueued, long done, int inFlight)
    implements Comparable<LaneReport> {
  static final int WIRE_BYTES = 24;

  @Override
  public int compareTo(LaneReport other) {
    return Comparator.comparingInt(LaneReport::tag)
        .thenComparingLong(LaneReport::enqueued)
        .compare(this, other);
  }

  void write(WireWriter out) {
    out.int32(tag).int64(enqueued).int64(done).int32(inFlight);
  }

  static LaneReport read(WireReader in) {
    return new LaneReport(
        in.int32("tag"), in.int64("enqueued"), in.int64("done"), in.int32("inFlight"));
  }
}
