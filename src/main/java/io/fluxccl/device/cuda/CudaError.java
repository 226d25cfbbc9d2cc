// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import io.fluxccl.DeviceFailure;
import io.fluxccl.Text;
import java.util.Set;
import java.util.function.IntSupplier;
import jcuda.CudaException;
import jcuda.driver.CUevent;
import jcuda.driver.CUresult;
import jcuda.driver.CUstream;
import jcuda.driver.JCudaDriver;

/** Converts the driver's result codes to {@link DeviceFailure}s. */
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
   * Throws unless a call succeeded. For rare calls only, because the caller builds the text each
   * time. Frequent calls compare the result themselves.
   *
   * @param result the driver's result
   * @param gpu the driver's number of the GPU
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
   * Returns the result code of an exception of JCuda, which keeps only the code's name. JCuda
   * throws if the application has called {@code JCudaDriver.setExceptionsEnabled}, which affects
   * the whole process.
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

  /** Returns the result of a rare call, also if the application lets JCuda throw. */
  static int result(IntSupplier call) {
    try {
      return call.getAsInt();
    } catch (CudaException e) {
      return statusOf(e);
    }
  }

  /**
   * Returns whether the GPU's context is unusable: a kernel failed, and every later call of this
   * process on that GPU returns the same result.
   */
  static boolean isSticky(int result) {
    return STICKY.contains(result);
  }

  private static String advice(int result) {
    if (isSticky(result)) {
      return "; an earlier kernel of this process failed, and nothing more will run on this GPU"
          + " until the process is restarted; run compute-sanitizer to find the kernel";
    }
    return switch (result) {
      case CUresult.CUDA_ERROR_OUT_OF_MEMORY ->
          "; close buffers, or find other users of the memory with nvidia-smi";
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
   * Returns the driver's result for an event. While its work runs, that is {@link
   * CUresult#CUDA_ERROR_NOT_READY}, which this method also returns if the application lets JCuda
   * throw. The caller has made the context current.
   */
  static int query(CUevent event) {
    try {
      return JCudaDriver.cuEventQuery(event);
    } catch (CudaException e) {
      return statusOf(e);
    }
  }

  /** Returns the driver's result for a stream, like {@link #query(CUevent)}. */
  static int query(CUstream stream) {
    try {
      return JCudaDriver.cuStreamQuery(stream);
    } catch (CudaException e) {
      return statusOf(e);
    }
  }
}
