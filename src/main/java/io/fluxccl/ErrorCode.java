// SPDX-License-Identifier: Apache-2.0
package io.fluxccl;

/** The kinds of failure, one for each subclass of {@link FluxCclException}. */
public enum ErrorCode {
  /** The caller requested something impossible: {@link InvalidUsage}. */
  INVALID_USAGE,
  /** A deadline passed: {@link Timeout}. */
  TIMEOUT,
  /** The communicator was aborted or closed while the operation was in flight: {@link Aborted}. */
  ABORTED,
  /** Another rank died or left: {@link RemoteFailure}. */
  REMOTE_FAILURE,
  /** A transport could not move bytes: {@link TransportFailure}. */
  TRANSPORT_FAILURE,
  /** A device or its driver refused: {@link DeviceFailure}. */
  DEVICE_FAILURE
}
