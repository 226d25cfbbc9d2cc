package io.fluxccl.device.cuda;

import io.fluxccl.InvalidUsage;
import java.util.List;

/** Something that compiles CUDA source. Thread-safe. */
interface KernelToolchain {
  /** Its name and version, which stand for what it makes of a source. */
  String version();

  /**
   * The GPU architectures that it has code for, as in 90.
   *
   * @return ascending
   */
  int[] architectures();

  /**
   * Compiles.
   *
   * @param source what
   * @param options more options, and include paths
   * @param target for which GPU
   * @return what the driver can load
   * @throws InvalidUsage with the compiler's words if the source is wrong
   * @throws io.fluxccl.DeviceFailure if the compiler fails otherwise
   */
  KernelImage compile(KernelSource source, CudaCompileOptions options, Target target);

  /**
   * What code to make.
   *
   * @param option the architecture's option, for example {@code -arch=sm_90}
   * @param cubin native code; PTX otherwise
   * @param chosen whether the option is ours, not among the user's
   */
  record Target(String option, boolean cubin, boolean chosen) {
    /**
     * Chooses for a GPU: native code where the compiler knows it, otherwise PTX of the nearest
     * older architecture, which the driver compiles.
     *
     * @param capability of the GPU, as in 90
     * @param options whose own architecture wins
     * @throws InvalidUsage if the compiler knows only newer GPUs
     */
    static Target of(int capability, CudaCompileOptions options, KernelToolchain toolchain) {
      for (int i = 0; i < options.options().size(); i++) {
        String option = options.options().get(i);
        if (isArchitecture(option)) {
          boolean valueFollows = option.indexOf('=') < 0 && i + 1 < options.options().size();
          String value = valueFollows ? options.options().get(i + 1) : option;
          return new Target(option, !value.contains("compute_"), false);
        }
      }
      int[] known = toolchain.architectures();
      int nearest = -1;
      for (int architecture : known) {
        if (architecture == capability) {
          return new Target("-arch=sm_" + capability, true, true);
        }
        if (architecture < capability) {
          nearest = Math.max(nearest, architecture);
        }
      }
      if (nearest < 0) {
        throw InvalidUsage.of(
            "%s has no code for a GPU of compute capability %s, only for %s; use an older" + " one",
            toolchain.version(), capability, java.util.Arrays.toString(known));
      }
      return new Target("-arch=compute_" + nearest, false, true);
    }

    private static boolean isArchitecture(String option) {
      return List.of("-arch", "--gpu-architecture").contains(option.split("=", 2)[0]);
    }
  }
}
