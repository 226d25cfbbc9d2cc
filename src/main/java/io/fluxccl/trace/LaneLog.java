// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.trace;

import java.util.function.IntSupplier;
import java.util.function.LongSupplier;

/**
 * A lane, as a report shows it. Any thread may call the suppliers, which take no lock.
 *
 * @param tag of the lane
 * @param enqueued the number of its last collective of all ranks that was enqueued
 * @param done the number of the last one that is done
 * @param inFlight how many calls are in flight
 */
public record LaneLog(int tag, LongSupplier enqueued, LongSupplier done, IntSupplier inFlight) {
  LaneReport report() {
    return new LaneReport(tag, enqueued.getAsLong(), done.getAsLong(), inFlight.getAsInt());
  }
}
