// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.trace;

/** The state of a recorded call. */
public enum Outcome {
  /** It is enqueued and not over. */
  IN_FLIGHT,
  /** It has completed. */
  DONE,
  /** It has failed, as a rule with the communicator. */
  FAILED,
  /** It was cancelled in flight, which aborted the communicator. */
  CANCELLED,
  /** Its subscriber cancelled; it continued, and has completed. */
  DETACHED
}
