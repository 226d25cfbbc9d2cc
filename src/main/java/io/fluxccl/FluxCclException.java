package io.fluxccl;

/**
 * The root of every error this library reports. All are unchecked; each says what was asked, of
 * whom, and what to try, and where one rank is to blame names it.
 */
public abstract class FluxCclException extends RuntimeException {
  private static final long serialVersionUID = 1L;

  /** What {@link #rank()} returns when no single rank is to blame. */
  public static final int NO_RANK = -1;

  private final ErrorCode code;
  private final int rank;

  FluxCclException(ErrorCode code, int rank, String message, Throwable cause) {
    super(message, cause);
    this.code = code;
    this.rank = rank;
  }

  /** The kind of this failure. */
  public final ErrorCode code() {
    return code;
  }

  /** The rank to blame, or {@link #NO_RANK}. */
  public final int rank() {
    return rank;
  }

  /**
   * The failure of the given kind; how an error that another rank reported is made again here.
   *
   * @param code the kind
   * @param rank the rank to blame, or {@link #NO_RANK}
   * @param message what happened
   * @return a new exception of the subclass that belongs to {@code code}
   */
  public static FluxCclException of(ErrorCode code, int rank, String message) {
    switch (code) {
      case INVALID_USAGE:
        return new InvalidUsage(message);
      case TIMEOUT:
        return new Timeout(rank, message);
      case ABORTED:
        return new Aborted(rank, message);
      case REMOTE_FAILURE:
        return new RemoteFailure(rank, message);
      case TRANSPORT_FAILURE:
        return new TransportFailure(rank, message);
      default:
        return new DeviceFailure(0, "UNKNOWN", message);
    }
  }

  /**
   * This failure once more, for somebody else who hears of it: what he adds to his own, nobody else
   * has to keep.
   *
   * @return a new exception of the same kind, rank and message, with this one as its cause
   */
  public final FluxCclException again() {
    return withMessage(getMessage());
  }

  /**
   * This failure in the words of somebody who knows more of it.
   *
   * @param message what to say instead
   * @return a new exception of the same kind and rank, with this one as its cause
   */
  public final FluxCclException withMessage(String message) {
    switch (code) {
      case INVALID_USAGE:
        return new InvalidUsage(message, this);
      case TIMEOUT:
        return new Timeout(rank, message, this);
      case ABORTED:
        return new Aborted(rank, message, this);
      case REMOTE_FAILURE:
        return new RemoteFailure(rank, message, this);
      case TRANSPORT_FAILURE:
        return new TransportFailure(rank, message, this);
      default:
        DeviceFailure failure = (DeviceFailure) this;
        return new DeviceFailure(failure.status(), failure.statusName(), message, failure);
    }
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
   * The given failure as one of this tree: unwrapped from {@code CompletionException} and {@code
   * ExecutionException}, and where it is foreign, as an {@link Aborted} that carries it as its
   * cause.
   *
   * @param failure any throwable
   * @return the failure itself when it is a FluxCclException, otherwise an Aborted around it
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
    return new Aborted(NO_RANK, "failed with " + inner, inner);
  }
}
