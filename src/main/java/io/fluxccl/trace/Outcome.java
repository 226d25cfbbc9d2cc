// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.trace;

/** How a recorded call stands. */
public enum Outcome {
  /** It is enqueued and not over. */
  IN_FLIGHT,
  /** It has completed. */
  DONE,
  /** It has failed, as a rule with the communicator. */
  FAILED,
  /** It was cancelled in flight, which aborted the communicator. */
  CANCELLED,
  /** Its subscriber cancelled; it went on, and has completed. */
  DETACHED
}
