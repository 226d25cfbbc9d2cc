// SPDX-License-Identifier: Apache-2.0
package io.fluxccl;

/**
 * The communicator or the operation was ended deliberately: by a close, another rank's abort, or a
 * cancel with {@code abortOnCancel}.
 */
public final class Aborted extends FluxCclException {
  private static final long serialVersionUID = 1L;

  /**
   * @param rank the rank that aborted, or {@link #NO_RANK}
   * @param message why
   */
  public Aborted(int rank, String message) {
    this(rank, message, null);
  }

  /**
   * @param rank the rank that aborted, or {@link #NO_RANK}
   * @param message why
   * @param cause what led to it, or null
   */
  public Aborted(int rank, String message, Throwable cause) {
    super(ErrorCode.ABORTED, rank, message, cause);
  }

  /**
   * Creates one with a formatted message.
   *
   * @param rank as in the constructor
   * @param format of {@link String#format}
   * @param arguments of the format
   */
  public static Aborted of(int rank, String format, Object... arguments) {
    return new Aborted(rank, Text.of(format, arguments));
  }
}
