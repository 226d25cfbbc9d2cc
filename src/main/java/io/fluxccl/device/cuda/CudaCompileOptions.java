// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import io.fluxccl.InvalidUsage;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Objects;
import java.util.stream.Stream;

/**
 * Options for compiling CUDA source: C++17, for the GPU in use, with FluxCCL's headers on the
 * include path. Immutable.
 *
 * @param compiler the compiler to use
 * @param options more options for it, as on its command line, one a string; {@code -arch=sm_90a}
 *     takes the place of the architecture that would be chosen
 * @param includePaths folders of more headers; a changed header causes a new compilation, unless a
 *     macro names the header
 * @param timeout the time limit for nvcc
 */
public record CudaCompileOptions(
    Compiler compiler, List<String> options, List<Path> includePaths, Duration timeout) {
  /** NVRTC or else nvcc, no more options, two minutes. */
  public static final CudaCompileOptions DEFAULT =
      new CudaCompileOptions(Compiler.AUTO, List.of(), List.of(), Duration.ofMinutes(2));

  /** The compilers. */
  public enum Compiler {
    /** NVRTC if it is available, otherwise nvcc. */
    AUTO,
    /** The compiler that is a library: fast, and needs no C++ compiler. */
    NVRTC,
    /** The compiler of the CUDA toolkit: knows the system's headers. */
    NVCC
  }

  /** Checks and copies what is given. */
  public CudaCompileOptions {
    Objects.requireNonNull(compiler, "compiler");
    options = List.copyOf(options);
    includePaths = List.copyOf(includePaths);
    if (timeout.isNegative() || timeout.isZero()) {
      throw new InvalidUsage("timeout=" + timeout + "; give more than zero");
    }
    for (String option : options) {
      if (option.isEmpty() || option.indexOf(0) >= 0) {
        throw new InvalidUsage("compiler option \"" + option + "\" is empty or has a NUL in it");
      }
    }
  }

  /** Returns these options with this compiler. */
  public CudaCompileOptions withCompiler(Compiler value) {
    return new CudaCompileOptions(value, options, includePaths, timeout);
  }

  /** Returns these options with this option appended. */
  public CudaCompileOptions withOption(String option) {
    List<String> more = Stream.concat(options.stream(), Stream.of(option)).toList();
    return new CudaCompileOptions(compiler, more, includePaths, timeout);
  }

  /** Returns these options with this folder of headers appended. */
  public CudaCompileOptions withIncludePath(Path folder) {
    List<Path> more = Stream.concat(includePaths.stream(), Stream.of(folder)).toList();
    return new CudaCompileOptions(compiler, options, more, timeout);
  }

  /** Returns these options with this time limit for nvcc. */
  public CudaCompileOptions withTimeout(Duration value) {
    return new CudaCompileOptions(compiler, options, includePaths, value);
  }
}
