// SPDX-License-Identifier: Apache-2.0
package io.fluxccl;

/**
 * A deadline passed before an operation was done. Names the rank that did not answer, if it is
 * known.
 */
public final class Timeout extends FluxCclException {
  private static final long serialVersionUID = 1L;

  /**
   * @param rank the rank that did not answer, or {@link #NO_RANK}
   * @param message the operation, the ranks that it waited for, and the time limit
   */
  public Timeout(int rank, String message) {
    this(rank, message, null);
  }

  Timeout(int rank, String message, Throwable cause) {
    super(ErrorCode.TIMEOUT, rank, message, cause);
  }

  /**
   * Creates one with a formatted message.
   *
   * @param rank as in the constructor
   * @param format of {@link String#format}
   * @param arguments of the format
   */
  public static Timeout of(int rank, String format, Object... arguments) {
    return new Timeout(rank, Text.of(format, arguments));
  }
}
