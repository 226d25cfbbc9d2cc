// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.Experimental;
import io.fluxccl.InvalidUsage;
import io.fluxccl.device.Device;

/**
 * A call whose sizes lie in device memory, where the kernel reads them when it runs: so a captured
 * graph can hold it, and the host knows only bounds. Its ranks, at least two, run on one host and
 * map each other's memory.
 *
 * <p>Values that break a bound abort the job, once the call has run, with {@link InvalidUsage} that
 * names the rank and the operation. Nothing is written beyond a buffer's end, and outputs of that
 * call are undefined. If the owner of a {@linkplain Collectives#lane(DeviceStream) wrapped stream}
 * replays such a call in a graph of its own, the job aborts when the next operation of the lane
 * completes.
 */
@Experimental
public sealed interface RoutedCall extends CollectiveCall
    permits DeviceAllToAllV, Dispatch, Combine {
  /**
   * Refuses buffers besides input and output that are missing, closed, too small, misaligned or of
   * another device. Allocates nothing for valid ones.
   */
  void checkRouting(Device device, RankTopology topology);
}
