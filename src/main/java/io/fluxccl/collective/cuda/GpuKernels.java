package io.fluxccl.collective.cuda;

import io.fluxccl.DataType;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.device.cuda.CudaKernel;
import io.fluxccl.device.cuda.CudaModule;
import java.util.Collection;
import java.util.EnumMap;
import java.util.Map;

/** An algorithm's kernels of the built-in module, one for each type of element. */
final class GpuKernels {
  private final Map<DataType, CudaKernel> byType = new EnumMap<>(DataType.class);

  private GpuKernels() {}

  /**
   * Finds {@code fluxccl_<name>_<label of the type>} and loads them where they are not loaded yet:
   * later that might wait for kernels.
   *
   * @param gpu where they will run
   * @param name of the algorithm
   * @param types those that it is compiled for
   * @param sharedBytes dynamic shared memory of a block
   * @throws io.fluxccl.DeviceFailure if there is neither a fat binary nor a compiler; says what is
   *     missing
   */
  static GpuKernels of(CudaDevice gpu, String name, Collection<DataType> types, int sharedBytes) {
    GpuKernels kernels = new GpuKernels();
    for (DataType type : types) {
      kernels.byType.put(type, one(gpu, name + "_" + type.label(), sharedBytes));
    }
    return kernels;
  }

  /** The kernel {@code fluxccl_<name>}, loaded. */
  static CudaKernel one(CudaDevice gpu, String name, int sharedBytes) {
    CudaKernel kernel = CudaModule.builtIn().kernel("fluxccl_" + name);
    return (sharedBytes == 0 ? kernel : kernel.withSharedMemory(sharedBytes)).prepare(gpu);
  }

  /** Whether there is one for that type. */
  boolean has(DataType type) {
    return byType.containsKey(type);
  }

  /** The kernel for a type; null if there is none. */
  CudaKernel of(DataType type) {
    return byType.get(type);
  }
}
