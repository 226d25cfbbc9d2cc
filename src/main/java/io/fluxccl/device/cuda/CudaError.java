// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import io.fluxccl.DeviceFailure;
import io.fluxccl.Text;
import java.util.Set;
import jcuda.CudaException;
import jcuda.driver.CUevent;
import jcuda.driver.CUresult;
import jcuda.driver.CUstream;
import jcuda.driver.JCudaDriver;

/** What the driver's result codes mean, as {@link DeviceFailure}. */
final class CudaError {
  private static final String NOT_READY = CUresult.stringFor(CUresult.CUDA_ERROR_NOT_READY);

  private static final Set<Integer> STICKY =
      Set.of(
          CUresult.CUDA_ERROR_ECC_UNCORRECTABLE,
          CUresult.CUDA_ERROR_NVLINK_UNCORRECTABLE,
          CUresult.CUDA_ERROR_ILLEGAL_ADDRESS,
          CUresult.CUDA_ERROR_LAUNCH_TIMEOUT,
          CUresult.CUDA_ERROR_ASSERT,
          CUresult.CUDA_ERROR_HARDWARE_STACK_ERROR,
          CUresult.CUDA_ERROR_ILLEGAL_INSTRUCTION,
          CUresult.CUDA_ERROR_MISALIGNED_ADDRESS,
          CUresult.CUDA_ERROR_INVALID_ADDRESS_SPACE,
          CUresult.CUDA_ERROR_INVALID_PC,
          CUresult.CUDA_ERROR_LAUNCH_FAILED);

  private CudaError() {}

  /**
   * Throws unless a call succeeded. For calls that are rare enough for building the text each time;
   * others compare the result themselves.
   *
   * @param result what the driver gave
   * @param gpu on which
   * @param call for the message, for example {@code cuMemAlloc(4096)}
   */
  static void check(int result, int gpu, String call) {
    if (result != CUresult.CUDA_SUCCESS) {
      throw of(result, gpu, call);
    }
  }

  /** Returns the failure of a call that did not succeed. */
  static DeviceFailure of(int result, int gpu, String call) {
    String name = CUresult.stringFor(result);
    String[] description = new String[1];
    boolean described =
        JCudaDriver.cuGetErrorString(result, description) == CUresult.CUDA_SUCCESS
            && description[0] != null;
    return new DeviceFailure(
        result,
        name,
        Text.of(
            "%s on GPU %s: %s%s%s",
            call, gpu, name, described ? " (" + description[0] + ")" : "", advice(result)));
  }

  /**
   * Returns the result code that became an exception, because the application let JCuda throw
   * ({@code JCudaDriver.setExceptionsEnabled}), for which there is one switch in a process. JCuda
   * keeps its name only.
   */
  static int statusOf(CudaException thrown) {
    if (NOT_READY.equals(thrown.getMessage())) {
      return CUresult.CUDA_ERROR_NOT_READY; // by far the most frequent
    }
    for (int code = 1; code < CUresult.CUDA_ERROR_UNKNOWN; code++) {
      if (CUresult.stringFor(code).equals(thrown.getMessage())) {
        return code;
      }
    }
    return CUresult.CUDA_ERROR_UNKNOWN;
  }

  /**
   * Returns whether the GPU's context is beyond use: a kernel went wrong, and every later call of
   * this process on that GPU answers the same.
   */
  static boolean isSticky(int result) {
    return STICKY.contains(result);
  }

  private static String advice(int result) {
    if (isSticky(result)) {
      return "; an earlier kernel of this process failed, and nothing more will run on this GPU"
          + " until the process is started anew; compute-sanitizer finds the kernel";
    }
    return switch (result) {
      case CUresult.CUDA_ERROR_OUT_OF_MEMORY ->
          "; close buffers, or see with nvidia-smi who else has the memory";
      case CUresult.CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES ->
          "; launch fewer threads a block, or compile with __launch_bounds__";
      case CUresult.CUDA_ERROR_NO_BINARY_FOR_GPU -> "; compile for this GPU, or give PTX or source";
      case CUresult.CUDA_ERROR_UNSUPPORTED_PTX_VERSION ->
          "; the PTX is newer than the driver: compile with an older nvcc or update the driver";
      case CUresult.CUDA_ERROR_DEVICE_UNAVAILABLE ->
          "; another process has it for itself (compute mode), or it needs a reset";
      case CUresult.CUDA_ERROR_PEER_ACCESS_UNSUPPORTED -> "; see nvidia-smi topo -p2p r";
      default -> "";
    };
  }

  /**
   * Returns whether the work before an event is done, as the driver says. Usually that is {@link
   * CUresult#CUDA_ERROR_NOT_READY}, which is no error even where the application lets JCuda throw.
   * The caller has made the context current.
   */
  static int query(CUevent event) {
    try {
      return JCudaDriver.cuEventQuery(event);
    } catch (CudaException e) {
      return statusOf(e);
    }
  }

  /** Returns whether the work of a stream is done; otherwise like {@link #query(CUevent)}. */
  static int query(CUstream stream) {
    try {
      return JCudaDriver.cuStreamQuery(stream);
    } catch (CudaException e) {
      return statusOf(e);
    }
  }
}
