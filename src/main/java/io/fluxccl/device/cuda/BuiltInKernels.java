// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import io.fluxccl.DeviceFailure;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import java.io.IOException;
import java.io.InputStream;
import java.util.List;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * FluxCCL's own kernels: the fat binary in the jar. If the build had no nvcc, or the driver is
 * older than the binary, the jar's sources are compiled at run time.
 */
final class BuiltInKernels implements CudaModule.Images {
  static final Logger LOG = LoggerFactory.getLogger(CudaModule.class);

  static final CudaModule MODULE =
      new CudaModule("FluxCCL's built-in kernels", new BuiltInKernels(), false);

  private static final String FAT_BINARY = "/io/fluxccl/cuda/fluxccl.fatbin";
  private static final String SOURCE = "builtin.cu";

  @Override
  public KernelImage make(int capability) {
    byte[] binary = fatBinary();
    return binary != null
        ? new KernelImage(binary)
        : compile(capability, "this build has no fat binary of them, for it had no nvcc");
  }

  @Override
  public KernelImage makeInstead(int capability, InvalidUsage refusal) {
    if (fatBinary() == null) {
      throw refusal; // it was compiled here already
    }
    return compile(capability, "the fat binary of this build is refused: " + refusal.getMessage());
  }

  private static KernelImage compile(int capability, String why) {
    String source = KernelSource.readPacked(SOURCE);
    if (source == null) {
      throw new DeviceFailure(
          0, "NO_KERNELS", "FluxCCL's built-in kernels: " + why + ", and no sources of them");
    }
    try {
      return KernelCompiler.PROCESS.compile(
          KernelSource.of(SOURCE, source, List.of()), CudaCompileOptions.DEFAULT, capability);
    } catch (FluxCclException e) {
      throw new DeviceFailure(
          0, "NO_KERNELS", "FluxCCL's built-in kernels: " + why + ". " + e.getMessage(), e);
    }
  }

  private static byte[] fatBinary() {
    try (InputStream in = BuiltInKernels.class.getResourceAsStream(FAT_BINARY)) {
      return in == null ? null : in.readAllBytes();
    } catch (IOException e) {
      throw new DeviceFailure(0, "NO_KERNELS", "reading " + FAT_BINARY + " failed: " + e, e);
    }
  }
}
