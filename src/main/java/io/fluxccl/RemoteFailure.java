// SPDX-License-Identifier: Apache-2.0
package io.fluxccl;

/** Another rank, {@link #rank()}, died or left while it was still needed. */
public final class RemoteFailure extends FluxCclException {
  private static final long serialVersionUID = 1L;

  /**
   * @param rank the rank that died or left
   * @param message how this rank detected it
   */
  public RemoteFailure(int rank, String message) {
    this(rank, message, null);
  }

  RemoteFailure(int rank, String message, Throwable cause) {
    super(ErrorCode.REMOTE_FAILURE, rank, message, cause);
  }

  /**
   * Creates one with a formatted message.
   *
   * @param rank as in the constructor
   * @param format of {@link String#format}
   * @param arguments of the format
   */
  public static RemoteFailure of(int rank, String format, Object... arguments) {
    return new RemoteFailure(rank, Text.of(format, arguments));
  }
}
