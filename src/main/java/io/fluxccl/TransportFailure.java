// SPDX-License-Identifier: Apache-2.0
package io.fluxccl;

/** A transport could not move bytes to or from {@link #rank()}; the message holds the status. */
public final class TransportFailure extends FluxCclException {
  private static final long serialVersionUID = 1L;

  /**
   * @param rank the peer at the other end, or {@link #NO_RANK}
   * @param message the operation and the transport's status
   */
  public TransportFailure(int rank, String message) {
    this(rank, message, null);
  }

  /**
   * @param rank the peer at the other end, or {@link #NO_RANK}
   * @param message the operation and the transport's status
   * @param cause what the operating system or the library said, or null
   */
  public TransportFailure(int rank, String message, Throwable cause) {
    super(ErrorCode.TRANSPORT_FAILURE, rank, message, cause);
  }

  /**
   * Creates one with a formatted message.
   *
   * @param rank as in the constructor
   * @param format of {@link String#format}
   * @param arguments of the format
   */
  public static TransportFailure of(int rank, String format, Object... arguments) {
    return new TransportFailure(rank, Text.of(format, arguments));
  }
}
