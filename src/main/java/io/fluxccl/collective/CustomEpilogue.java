// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.Experimental;
import io.fluxccl.InvalidUsage;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceHandle;
import io.fluxccl.device.cuda.CudaModule;
import java.util.List;

/**
 * A user-defined epilogue on GPUs: a structure with a device function, whose kernels {@code
 * FLUXCCL_EPILOGUE(name, ...)} of {@code fluxccl/epilogue.cuh} defines.
 *
 * <pre>{@code
 * CudaModule module = CudaModule.fromFile(Path.of("bias_silu.cu")).prepare(gpu);
 * Epilogue biasSilu =
 *     CustomEpilogue.of(
 *         module,
 *         "biasSilu",
 *         new KernelStruct(16).putLong(bias.address()).putLong(out.address()),
 *         bias, out);
 * }</pre>
 *
 * @param kernels of the epilogue
 * @param argument the structure's fields, which are copied at each launch
 * @param buffers to which the structure points
 */
@Experimental
public record CustomEpilogue(
    EpilogueKernels kernels, DeviceHandle argument, List<DeviceBuffer> buffers)
    implements Epilogue.OnGpus {
  /** Refuses null. */
  public CustomEpilogue {
    InvalidUsage.requireNonNull(kernels, "epilogue", "kernels");
    InvalidUsage.requireNonNull(argument, "epilogue", "argument");
    buffers = List.copyOf(buffers);
  }

  /**
   * Returns an epilogue.
   *
   * @param module of the kernels, prepared for the GPU; the caller closes it, after the last call
   * @param name the first argument of {@code FLUXCCL_EPILOGUE}
   * @param argument the structure's fields; their order and alignment are those of CUDA C++
   * @param buffers to which the structure points
   */
  public static CustomEpilogue of(
      CudaModule module, String name, DeviceHandle argument, DeviceBuffer... buffers) {
    InvalidUsage.requireNonNull(module, "epilogue", "module");
    InvalidUsage.requireNonNull(name, "epilogue", "name");
    return new CustomEpilogue(new EpilogueKernels(module, name), argument, List.of(buffers));
  }

  @Override
  public String signature() {
    return kernels.name();
  }

  @Override
  public void check(FusedAllReduce call, BufferCheck check) {
    buffers.forEach(buffer -> check.require("buffer of " + kernels.name(), buffer, 0, 1));
  }
}
