// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import io.fluxccl.DeviceFailure;
import io.fluxccl.FluxCclException;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Supplier;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Compiles CUDA source for a GPU by an available compiler, and caches the result on disk.
 * Thread-safe; blocks while it compiles.
 */
final class KernelCompiler {
  private static final Logger LOG = LoggerFactory.getLogger(KernelCompiler.class);

  /** Part of each key. Change it if the same inputs give another result. */
  private static final String GENERATION = "1";

  /** The compiler of this process, found by its environment. */
  static final KernelCompiler PROCESS =
      new KernelCompiler(new CudaToolkit(System.getenv()), KernelCache.of(System.getenv()));

  private final KernelCache cache;
  private final List<Found> compilers;

  KernelCompiler(CudaToolkit toolkit, KernelCache cache) {
    this.cache = cache;
    this.compilers =
        List.of(
            new Found(CudaCompileOptions.Compiler.NVRTC, () -> Nvrtc.find(toolkit)),
            new Found(CudaCompileOptions.Compiler.NVCC, () -> Nvcc.find(toolkit)));
  }

  /** A compiler that is searched for at the first use, and the result of the search. */
  private static final class Found {
    private final CudaCompileOptions.Compiler kind;
    private final Supplier<KernelToolchain> find;
    private KernelToolchain toolchain; // guarded by this
    private FluxCclException missing; // guarded by this

    Found(CudaCompileOptions.Compiler kind, Supplier<KernelToolchain> find) {
      this.kind = kind;
      this.find = find;
    }

    synchronized KernelToolchain get() {
      if (toolchain == null && missing == null) {
        try {
          toolchain = find.get();
          LOG.debug("kernels can be compiled by {}", toolchain.version);
        } catch (FluxCclException e) {
          missing = e;
        }
      }
      if (missing != null) {
        throw missing;
      }
      return toolchain;
    }
  }

  /** Returns a line of text for each compiler: its version, or why it is missing. */
  List<String> describe() {
    List<String> lines = new ArrayList<>();
    for (Found found : compilers) {
      try {
        lines.add(found.get().version);
      } catch (FluxCclException e) {
        lines.add(e.getMessage());
      }
    }
    return lines;
  }

  /**
   * Compiles a source, or returns the cached result for the same inputs.
   *
   * @param source the source and its headers
   * @param options the compiler's options
   * @param capability the GPU's compute capability, as in 90
   * @return an image that the driver can load
   * @throws io.fluxccl.InvalidUsage with the compiler's messages if the source is wrong
   * @throws DeviceFailure if there is no compiler (the message lists the searched paths), or it
   *     fails
   */
  CudaModule.Image compile(KernelSource source, CudaCompileOptions options, int capability) {
    KernelToolchain toolchain = toolchain(source.name(), options.compiler());
    KernelToolchain.Target target = toolchain.target(capability, options);
    String key =
        "sm" + capability + "-" + KernelCache.key(parts(source, options, toolchain, target));
    byte[] kept = cache.get(key).orElse(null);
    if (kept != null) {
      return new CudaModule.Image(kept);
    }
    long start = System.nanoTime();
    CudaModule.Image image = toolchain.compile(source, options, target);
    LOG.debug(
        "{} compiled {} for sm_{} in {} ms",
        toolchain.version,
        source.name(),
        capability,
        (System.nanoTime() - start) / 1_000_000);
    cache.put(key, image.bytes());
    return image;
  }

  private static List<String> parts(
      KernelSource source,
      CudaCompileOptions options,
      KernelToolchain toolchain,
      KernelToolchain.Target target) {
    List<String> parts =
        new ArrayList<>(
            List.of(GENERATION, toolchain.version, target.option(), source.name(), source.text()));
    parts.addAll(options.options());
    parts.add("packed");
    source.packed().forEach((name, text) -> parts.addAll(List.of(name, text)));
    parts.add("files");
    source.files().forEach((path, text) -> parts.addAll(List.of(path.toString(), text)));
    options.includePaths().forEach(path -> parts.add(path.toAbsolutePath().toString()));
    return parts;
  }

  private KernelToolchain toolchain(String name, CudaCompileOptions.Compiler wanted) {
    List<String> reasons = new ArrayList<>();
    for (Found found : compilers) {
      if (wanted == found.kind || wanted == CudaCompileOptions.Compiler.AUTO) {
        try {
          return found.get();
        } catch (FluxCclException e) {
          reasons.add(found.kind + ": " + e.getMessage());
        }
      }
    }
    throw new DeviceFailure(
        0,
        "NO_COMPILER",
        "compiling " + name + " needs a CUDA compiler. " + String.join(". ", reasons));
  }
}
