// SPDX-License-Identifier: Apache-2.0
package io.fluxccl;

/** Another rank died, or left while it was still needed; {@link #rank()} says which. */
public final class RemoteFailure extends FluxCclException {
  private static final long serialVersionUID = 1L;

  /**
   * @param rank the rank that is gone
   * @param message how that was noticed
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
