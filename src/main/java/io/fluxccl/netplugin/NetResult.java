package io.fluxccl.netplugin;

import io.fluxccl.FluxCclException;

/** NCCL's codes for results, and which failure each stands for. */
public enum NetResult {
  /** It worked, so far. */
  SUCCESS(0),
  /** CUDA refused. */
  UNHANDLED_CUDA_ERROR(1),
  /** The system or the network failed. */
  SYSTEM_ERROR(2),
  /** The interface was used in a way it does not allow. */
  INTERNAL_ERROR(3),
  /** An argument is wrong. */
  INVALID_ARGUMENT(4),
  /** The user did something that can't be, such as sizes that do not match. */
  INVALID_USAGE(5),
  /** The peer is gone, or does not answer. */
  REMOTE_ERROR(6);

  private final int code;

  NetResult(int code) {
    this.code = code;
  }

  /** NCCL's number for it. */
  public int code() {
    return code;
  }

  /**
   * The result with a code.
   *
   * @param code what a plugin returned
   * @return its result; {@link #INTERNAL_ERROR} for an unknown code
   */
  public static NetResult of(int code) {
    for (NetResult result : values()) {
      if (result.code == code) {
        return result;
      }
    }
    return INTERNAL_ERROR;
  }

  /**
   * What NCCL is told of a failure.
   *
   * @param failure of a Java plugin
   * @return the result that says it
   */
  public static NetResult of(Throwable failure) {
    if (!(failure instanceof FluxCclException)) {
      return INTERNAL_ERROR;
    }
    return switch (((FluxCclException) failure).code()) {
      case INVALID_USAGE -> INVALID_USAGE;
      case TIMEOUT, REMOTE_FAILURE -> REMOTE_ERROR;
      case DEVICE_FAILURE -> UNHANDLED_CUDA_ERROR;
      case TRANSPORT_FAILURE, ABORTED -> SYSTEM_ERROR;
    };
  }
}
