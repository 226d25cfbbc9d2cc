// SPDX-License-Identifier: Apache-2.0
package io.fluxccl;

/**
 * The root of every error that this library reports. All are unchecked. The message names the
 * operation, the problem and a remedy. {@link #rank()} is the rank to which the failure is
 * attributed, if there is one.
 */
public abstract class FluxCclException extends RuntimeException {
  private static final long serialVersionUID = 1L;

  /** The value of {@link #rank()} if the failure is not attributed to a single rank. */
  public static final int NO_RANK = -1;

  private final ErrorCode code;
  private final int rank;

  FluxCclException(ErrorCode code, int rank, String message, Throwable cause) {
    super(message, cause);
    this.code = code;
    this.rank = rank;
  }

  /** Returns the kind of this failure. */
  public final ErrorCode code() {
    return code;
  }

  /** Returns the rank to which the failure is attributed, or {@link #NO_RANK}. */
  public final int rank() {
    return rank;
  }

  /**
   * Returns a failure of the given kind; recreates an error that another rank reported.
   *
   * @param code the kind
   * @param rank the rank to which the failure is attributed, or {@link #NO_RANK}
   * @param message what happened
   * @return a new exception of the subclass that belongs to {@code code}
   */
  public static FluxCclException of(ErrorCode code, int rank, String message) {
    return of(code, rank, message, null);
  }

  private static FluxCclException of(ErrorCode code, int rank, String message, Throwable cause) {
    return switch (code) {
      case INVALID_USAGE -> new InvalidUsage(message, cause);
      case TIMEOUT -> new Timeout(rank, message, cause);
      case ABORTED -> new Aborted(rank, message, cause);
      case REMOTE_FAILURE -> new RemoteFailure(rank, message, cause);
      case TRANSPORT_FAILURE -> new TransportFailure(rank, message, cause);
      case DEVICE_FAILURE -> new DeviceFailure(0, "UNKNOWN", message, cause);
    };
  }

  /**
   * Returns a copy of this failure, for another caller: each may add suppressed exceptions to its
   * own copy.
   *
   * @return a new exception of the same kind, rank and message, with this one as its cause
   */
  public final FluxCclException again() {
    return withMessage(getMessage());
  }

  /**
   * Returns this failure with another message, for code that adds information.
   *
   * @param message the new message
   * @return a new exception of the same kind and rank, with this one as its cause
   */
  public final FluxCclException withMessage(String message) {
    return withRank(rank, message);
  }

  /**
   * Returns this failure as another group of ranks sees it.
   *
   * @param otherRank the number of {@link #rank()} there, or {@link #NO_RANK}; kept only by kinds
   *     that name a rank
   * @param message the new message
   * @return a new exception of the same kind, with this one as its cause
   */
  public final FluxCclException withRank(int otherRank, String message) {
    return this instanceof DeviceFailure own
        ? new DeviceFailure(own.status(), own.statusName(), message, own)
        : of(code, otherRank, message, this);
  }

  /**
   * Returns this failure with the job's name in its message.
   *
   * @param job the name, or empty
   * @return this failure, if its message has the name or there is none; otherwise one whose message
   *     begins with it
   */
  public final FluxCclException inJob(String job) {
    boolean known = job.isEmpty() || String.valueOf(getMessage()).contains(job);
    return known ? this : withMessage("job " + job + ": " + getMessage());
  }

  /**
   * Returns this failure as it is sent to other ranks. A failure that names no rank is prefixed
   * with the rank on which it occurred.
   *
   * @param origin the rank on which it occurred
   * @return this failure, if it names a rank; otherwise one whose message begins with the origin
   */
  public final FluxCclException attributedTo(int origin) {
    return rank == NO_RANK ? withMessage("rank " + origin + ": " + getMessage()) : this;
  }

  /**
   * Returns the given failure as a FluxCclException. Unwraps {@code CompletionException} and {@code
   * ExecutionException}. Any other exception becomes the cause of an {@link Aborted}, or of a
   * {@link TransportFailure} if this process has no file descriptor left.
   *
   * @param failure any throwable
   * @return the failure itself when it is a FluxCclException, otherwise one around it
   */
  public static FluxCclException from(Throwable failure) {
    Throwable inner = failure;
    while ((inner instanceof java.util.concurrent.CompletionException
            || inner instanceof java.util.concurrent.ExecutionException)
        && inner.getCause() != null) {
      inner = inner.getCause();
    }
    if (inner instanceof FluxCclException) {
      return (FluxCclException) inner;
    }
    return OpenFiles.ranOut(inner)
        ? new TransportFailure(NO_RANK, OpenFiles.explain(inner, "") + " (" + inner + ")", inner)
        : new Aborted(NO_RANK, "failed with " + inner, inner);
  }
}
