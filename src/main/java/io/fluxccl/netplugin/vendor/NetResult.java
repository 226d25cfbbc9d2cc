// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.vendor;

import io.fluxccl.FluxCclException;
import io.fluxccl.netplugin.NetMisuse;

/** NCCL's result codes, and the failures that they stand for. */
public enum NetResult {
  /** The call succeeded so far. */
  SUCCESS(0),
  /** A CUDA call failed. */
  UNHANDLED_CUDA_ERROR(1),
  /** The system or the network failed. */
  SYSTEM_ERROR(2),
  /** The caller breaks a rule of the interface, for example with too many requests. */
  INTERNAL_ERROR(3),
  /** An argument is wrong. */
  INVALID_ARGUMENT(4),
  /** The user's calls or settings are inconsistent, such as sizes that do not match. */
  INVALID_USAGE(5),
  /** The peer has ended or does not answer. */
  REMOTE_ERROR(6);

  private final int code;

  NetResult(int code) {
    this.code = code;
  }

  /** Returns NCCL's number of the result. */
  public int code() {
    return code;
  }

  /**
   * Returns the result that has a code.
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
   * Returns the result that reports a failure to NCCL.
   *
   * @param failure the failure of a Java plugin
   * @return the result; {@link #INTERNAL_ERROR} for a {@link NetMisuse}, and if the failure is no
   *     FluxCclException
   */
  public static NetResult of(Throwable failure) {
    if (failure instanceof NetMisuse) {
      return INTERNAL_ERROR;
    }
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
