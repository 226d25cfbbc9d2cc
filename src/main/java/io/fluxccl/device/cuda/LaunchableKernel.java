package io.fluxccl.device.cuda;

import io.fluxccl.device.DeviceKind;
import io.fluxccl.device.Kernel;
import jcuda.driver.CUfunction;

/** What a {@link CudaStream} can launch. */
abstract class LaunchableKernel implements Kernel {
  @Override
  public final DeviceKind kind() {
    return DeviceKind.CUDA;
  }

  /**
   * The function as loaded on a device; loaded by this call if it was not, then with everything of
   * its module, because loading later may wait for kernels that run.
   *
   * @param device whose context is current
   * @return the function; the same object each time for a context
   * @throws io.fluxccl.DeviceFailure if the driver can't load it
   */
  abstract CUfunction functionOn(CudaDevice device);

  /** What it takes on a device, as far as that is known. */
  KernelSignature signatureOn(CudaDevice device) {
    return KernelSignature.UNKNOWN;
  }

  /** Dynamic shared memory of a block where the launch doesn't say. */
  int sharedBytes() {
    return 0;
  }

  /** Whether it awaits the launch before it itself; {@link CudaKernel#overlapping}. */
  boolean overlaps() {
    return false;
  }
}
