package io.fluxccl.device.cuda;

import io.fluxccl.NativeLibrary;
import jcuda.driver.CUfunction;
import jcuda.driver.CUstream;

/**
 * Launches that may begin before the launch in front of them has ended (programmatic dependent
 * launch), which JCuda's version of the driver API can't ask for.
 */
final class OverlappingLaunch {
  private static final int LEAST_COMPUTE_CAPABILITY = 90;

  /** Environment variable: {@code 0} launches all kernels as if none could overlap. */
  private static final String VARIABLE = "FLUXCCL_OVERLAP_LAUNCHES";

  private static final boolean WANTED = !"0".equals(System.getenv(VARIABLE));
  private static final boolean DRIVER_CAN =
      WANTED && NativeLibrary.isAvailable() && FunctionCalls.canOverlap();

  private OverlappingLaunch() {}

  /** Whether a GPU, its driver and this library can. */
  static boolean worksOn(CudaDevice device) {
    return DRIVER_CAN && device.computeCapability() >= LEAST_COMPUTE_CAPABILITY;
  }

  /**
   * {@code cuLaunchKernelEx} with that attribute; the context is current.
   *
   * @param packed addresses of the arguments
   * @return the driver's result
   */
  static int launch(
      CUfunction function,
      int gridDim,
      int blockDim,
      int sharedBytes,
      CUstream stream,
      CudaPointer packed) {
    return FunctionCalls.launchOverlapping(
        CudaPointer.valueOf(function),
        gridDim,
        blockDim,
        sharedBytes,
        CudaPointer.valueOf(stream),
        CudaPointer.valueOf(packed));
  }
}
