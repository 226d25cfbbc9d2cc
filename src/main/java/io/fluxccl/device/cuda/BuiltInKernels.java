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
 * FluxCCL's own kernels: the fat binary of the jar {@code fluxccl-kernels}. Without that jar, or if
 * the driver is older than the binary, the sources of this jar are compiled at run time.
 */
final class BuiltInKernels implements CudaModule.Images {
  static final Logger LOG = LoggerFactory.getLogger(CudaModule.class);

  static final CudaModule MODULE =
      new CudaModule(
          "FluxCCL's built-in kernels",
          new BuiltInKernels(
              "io/fluxccl/cuda/fluxccl.fatbin", KernelCompiler.PROCESS, CudaCompileOptions.DEFAULT),
          false);

  private static final String SOURCE = "builtin.cu";

  private final String fatBinary;
  private final KernelCompiler compiler;
  private final CudaCompileOptions options;

  /**
   * Creates the images of the kernels.
   *
   * @param fatBinary the resource that holds them, if there is one
   * @param compiler makes them otherwise
   * @param options how they are compiled
   */
  BuiltInKernels(String fatBinary, KernelCompiler compiler, CudaCompileOptions options) {
    this.fatBinary = fatBinary;
    this.compiler = compiler;
    this.options = options;
  }

  @Override
  public KernelImage make(int capability) {
    byte[] binary = fatBinary();
    return binary != null
        ? new KernelImage(binary)
        : compile(
            capability,
            "their fat binary is not on the class path (add the Maven dependency"
                + " io.fluxccl:fluxccl-kernels)");
  }

  @Override
  public KernelImage makeInstead(int capability, InvalidUsage refusal) {
    if (fatBinary() == null) {
      throw refusal; // it was compiled here already
    }
    return compile(capability, "the driver refuses their fat binary: " + refusal.getMessage());
  }

  private KernelImage compile(int capability, String why) {
    String source = KernelSource.readPacked(SOURCE);
    if (source == null) {
      throw new DeviceFailure(
          0, "NO_KERNELS", "FluxCCL's built-in kernels: " + why + ", and no sources of them");
    }
    try {
      return compiler.compile(KernelSource.of(SOURCE, source, List.of()), options, capability);
    } catch (FluxCclException e) {
      throw new DeviceFailure(
          0, "NO_KERNELS", "FluxCCL's built-in kernels: " + why + ". " + e.getMessage(), e);
    }
  }

  private byte[] fatBinary() {
    // Of the class loader, not of the class: on the module path the jar is another module.
    try (InputStream in = BuiltInKernels.class.getClassLoader().getResourceAsStream(fatBinary)) {
      return in == null ? null : in.readAllBytes();
    } catch (IOException e) {
      throw new DeviceFailure(0, "NO_KERNELS", "reading " + fatBinary + " failed: " + e, e);
    }
  }
}
