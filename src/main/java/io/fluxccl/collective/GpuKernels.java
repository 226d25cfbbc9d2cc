package io.fluxccl.collective;

import io.fluxccl.DataType;
import io.fluxccl.InvalidUsage;
import io.fluxccl.device.Kernel;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.device.cuda.CudaModule;
import java.util.EnumMap;
import java.util.Map;
import java.util.function.Function;

/** One algorithm's kernels of the built-in module, one for each type of element. */
final class GpuKernels {
  private final Map<DataType, Kernel> byType = new EnumMap<>(DataType.class);

  /**
   * Finds them, and loads them where they are not loaded yet: later that might wait for kernels.
   *
   * @param gpu where they will run
   * @param nameOf gives a kernel's name
   * @throws io.fluxccl.DeviceFailure if there is neither a fat binary nor a compiler; says what is
   *     missing
   */
  GpuKernels(CudaDevice gpu, Function<DataType, String> nameOf) {
    CudaModule module = CudaModule.builtIn();
    for (DataType type : DataType.values()) {
      if (type == DataType.FLOAT8_E4M3 || type == DataType.FLOAT8_E5M2) {
        continue; // through Collectives only
      }
      byType.put(type, module.kernel(nameOf.apply(type)).prepare(gpu));
    }
  }

  /**
   * The kernel for a type.
   *
   * @throws InvalidUsage if there is none: for the 8-bit floating-point types
   */
  Kernel of(DataType type) {
    Kernel kernel = byType.get(type);
    if (kernel == null) {
      throw new InvalidUsage("allReduce of " + type + " on a GPU; use Collectives for that type");
    }
    return kernel;
  }

  /**
   * Refuses buffers that GPUs can't load elements from.
   *
   * @param address of a buffer, or the bits of several
   * @param type of the elements
   * @throws InvalidUsage if it is no multiple of an element's size
   */
  static void checkAlignment(long address, DataType type) {
    if (address % type.size() != 0) {
      throw new InvalidUsage(
          "allReduce of "
              + type
              + ": on a GPU the buffer must begin at a multiple of an element's "
              + type.size()
              + " bytes on every rank; a slice of another buffer may not");
    }
  }
}
