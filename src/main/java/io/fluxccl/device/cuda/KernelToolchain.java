// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import io.fluxccl.InvalidUsage;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.stream.Stream;

/** A compiler for CUDA source. Thread-safe. */
abstract class KernelToolchain {
  /** Its name and version, which identify its output for a source. */
  final String version;

  /** The GPU architectures that it can generate code for, as in 90. */
  private final int[] architectures;

  KernelToolchain(String version, int[] architectures) {
    this.version = version;
    this.architectures = architectures;
  }

  /**
   * Compiles a source.
   *
   * @param source the source and its headers
   * @param options more options, and include paths
   * @param target the code to generate
   * @return an image that the driver can load
   * @throws InvalidUsage with the compiler's messages if the source is wrong
   * @throws io.fluxccl.DeviceFailure if the compiler fails otherwise
   */
  abstract CudaModule.Image compile(KernelSource source, CudaCompileOptions options, Target target);

  /** Returns the options that every compiler takes: language, architecture, headers, the user's. */
  static List<String> arguments(Target target, CudaCompileOptions options, List<Path> headers) {
    List<String> arguments = new ArrayList<>(List.of("-std=c++17"));
    if (target.chosen()) {
      arguments.add(target.option());
    }
    Stream.concat(options.includePaths().stream(), headers.stream())
        .map(folder -> "-I" + folder.toAbsolutePath())
        .forEach(arguments::add);
    arguments.addAll(options.options());
    return arguments;
  }

  /**
   * Chooses code for a GPU: native code if the compiler supports it, otherwise PTX of the nearest
   * older architecture, which the driver compiles.
   *
   * @param capability of the GPU, as in 90
   * @param options whose own architecture wins
   * @throws InvalidUsage if the compiler knows only newer GPUs
   */
  final Target target(int capability, CudaCompileOptions options) {
    List<String> given = options.options();
    for (int i = 0; i < given.size(); i++) {
      String option = given.get(i);
      if (List.of("-arch", "--gpu-architecture").contains(option.split("=", 2)[0])) {
        boolean valueFollows = option.indexOf('=') < 0 && i + 1 < given.size();
        String value = valueFollows ? given.get(i + 1) : option;
        return new Target(option, !value.contains("compute_"), false);
      }
    }
    int nearest =
        Arrays.stream(architectures)
            .filter(known -> known <= capability)
            .max()
            .orElseThrow(
                () ->
                    InvalidUsage.of(
                        "%s has no code for a GPU of compute capability %s, only for %s; use an"
                            + " older one",
                        version, capability, Arrays.toString(architectures)));
    return nearest == capability
        ? new Target("-arch=sm_" + capability, true, true)
        : new Target("-arch=compute_" + nearest, false, true);
  }

  /**
   * The kind of code to generate.
   *
   * @param option the architecture's option, for example {@code -arch=sm_90}
   * @param cubin native code; PTX otherwise
   * @param chosen whether the option is ours, not among the user's
   */
  record Target(String option, boolean cubin, boolean chosen) {
    /** Returns the image of code that was generated for this target. */
    CudaModule.Image image(byte[] bytes) {
      return cubin ? new CudaModule.Image(bytes) : CudaModule.Image.ptx(bytes);
    }
  }
}
