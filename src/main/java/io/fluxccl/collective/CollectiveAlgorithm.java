// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.Experimental;
import io.fluxccl.device.DeviceStream;

/**
 * One way to execute one or several collectives, bound to a lane. Its decisions must be the same on
 * every rank. So they depend on the call's signature, its total bytes, the topology without the
 * rank, and whether its buffers are registered; never on addresses or this rank's number.
 */
@Experimental
public interface CollectiveAlgorithm {
  /** Returns its name among all algorithms, for example {@code two-shots-ll128}. */
  String name();

  /**
   * Returns whether it reads the sizes of a call from the device, in its kernels. Only these
   * algorithms run a {@link RoutedCall}, and they run no other calls.
   */
  default boolean isRouted() {
    return false;
  }

  /**
   * Returns whether results are those of the operation itself. An algorithm whose results are less
   * exact is never chosen, neither by its estimate nor by a tuning file: only by its name, through
   * {@link CollectivesOptions#withAlgorithm} or {@link Collectives#prefer}.
   */
  default boolean isExact() {
    return true;
  }

  /**
   * Returns whether it relies on NVLink: on stores of 128 bytes that arrive whole, as packets with
   * one flag for 120 bytes do. Other links keep words of 8 bytes whole only, so the selector
   * refuses such an algorithm unless {@link RankTopology#hasNvlink}, also if it is named.
   */
  default boolean needsNvlink() {
    return false;
  }

  /**
   * Returns whether it can execute a call. Must be false for collectives that it does not know, for
   * example those of later versions.
   */
  boolean supports(BoundCall call);

  /**
   * Returns how long a call would take, in microseconds; the selector takes the least. A model of
   * two or three terms, fitted to measurements, is enough.
   */
  double estimate(BoundCall call);

  /**
   * Returns whether copy engines move most of the data; see {@link
   * CollectivesOptions#preferCopyEngines}.
   */
  default boolean usesCopyEngines() {
    return false;
  }

  /**
   * Returns in which order it combines values of a call that it supports, for {@link
   * CollectivesOptions#reproducible}. For calls that combine none, any result is correct.
   */
  default ReductionOrder order(BoundCall call) {
    return ReductionOrder.VARYING;
  }

  /**
   * Enqueues the call: returns at once, allocates little, waits for nothing. Called by one thread
   * at a time, for the calls of a lane in the same order on all ranks. Called also while a stream
   * is recorded, so all that changes from run to run (epochs, slots) must be kept on the device.
   *
   * @param stream of the lane, or a recording
   * @param call that it supports; its count is not 0, and there are two ranks or more
   */
  void enqueue(DeviceStream stream, BoundCall call);
}
