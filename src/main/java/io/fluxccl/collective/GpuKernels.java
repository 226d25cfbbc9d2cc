// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.DataType;
import io.fluxccl.Experimental;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.device.cuda.CudaKernel;
import io.fluxccl.device.cuda.CudaModule;
import java.util.EnumMap;
import java.util.Map;
import java.util.function.Predicate;

/** Loads kernels of the built-in module: loading them later might wait for running kernels. */
@Experimental
public final class GpuKernels {
  private GpuKernels() {}

  /**
   * Loads {@code fluxccl_<name>_<label of the type>} for each type of element that a kernel is
   * compiled for.
   *
   * @param sharedBytes dynamic shared memory of a block
   * @throws io.fluxccl.DeviceFailure if there is neither a fat binary nor a compiler; names what is
   *     missing
   */
  public static Map<DataType, CudaKernel> byType(
      CudaDevice gpu, String name, Predicate<DataType> isCompiled, int sharedBytes) {
    Map<DataType, CudaKernel> kernels = new EnumMap<>(DataType.class);
    for (DataType type : DataType.values()) {
      if (isCompiled.test(type)) {
        kernels.put(type, one(gpu, name + "_" + type.label(), sharedBytes));
      }
    }
    return kernels;
  }

  /** Loads the kernel {@code fluxccl_<name>}. */
  public static CudaKernel one(CudaDevice gpu, String name, int sharedBytes) {
    CudaKernel kernel = CudaModule.builtIn().kernel("fluxccl_" + name);
    return (sharedBytes == 0 ? kernel : kernel.withSharedMemory(sharedBytes)).prepare(gpu);
  }
}
