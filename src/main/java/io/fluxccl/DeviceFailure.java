// SPDX-License-Identifier: Apache-2.0
package io.fluxccl;

/** A device or its driver refused a call, or a kernel failed. */
public final class DeviceFailure extends FluxCclException {
  private static final long serialVersionUID = 1L;

  private final int status;
  private final String statusName;

  /**
   * @param status the code of the driver (a CUresult on CUDA), 0 where there is none
   * @param statusName its name, for example {@code CUDA_ERROR_OUT_OF_MEMORY}
   * @param message the call and its arguments
   */
  public DeviceFailure(int status, String statusName, String message) {
    this(status, statusName, message, null);
  }

  /**
   * @param status the code of the driver (a CUresult on CUDA), 0 where there is none
   * @param statusName its name, for example {@code CUDA_ERROR_OUT_OF_MEMORY}
   * @param message the call and its arguments
   * @param cause what a kernel threw, or null
   */
  public DeviceFailure(int status, String statusName, String message, Throwable cause) {
    super(ErrorCode.DEVICE_FAILURE, NO_RANK, message, cause);
    this.status = status;
    this.statusName = statusName;
  }

  /** The code that the driver gave; 0 where there is none. */
  public int status() {
    return status;
  }

  /** The name of {@link #status()}. */
  public String statusName() {
    return statusName;
  }
}
