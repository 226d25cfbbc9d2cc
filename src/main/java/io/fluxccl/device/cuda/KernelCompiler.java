package io.fluxccl.device.cuda;

import io.fluxccl.DeviceFailure;
import io.fluxccl.FluxCclException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.function.Function;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Compiles CUDA source for a GPU by what is there, and keeps what comes out on disk. Thread-safe;
 * blocks while it compiles.
 */
final class KernelCompiler {
  private static final Logger LOG = LoggerFactory.getLogger(KernelCompiler.class);

  /** Changes when what is kept under a key would be made differently. */
  private static final String GENERATION = "1";

  private final KernelCache cache;
  private final Found nvrtc;
  private final Found nvcc;

  KernelCompiler(CudaToolkit toolkit, KernelCache cache) {
    this.cache = cache;
    this.nvrtc = new Found(toolkit, Nvrtc::find);
    this.nvcc = new Found(toolkit, Nvcc::find);
  }

  /** Returns the compiler of this process, found by its environment. */
  static KernelCompiler ofProcess() {
    return Holder.OF_PROCESS;
  }

  private static final class Holder {
    static final KernelCompiler OF_PROCESS =
        new KernelCompiler(new CudaToolkit(System.getenv()), KernelCache.of(System.getenv()));
  }

  /** A compiler that is searched for at the first use, and the result of the search. */
  private static final class Found {
    private final CudaToolkit toolkit;
    private final Function<CudaToolkit, KernelToolchain> find;
    private KernelToolchain toolchain; // guarded by this
    private FluxCclException missing; // guarded by this

    Found(CudaToolkit toolkit, Function<CudaToolkit, KernelToolchain> find) {
      this.toolkit = toolkit;
      this.find = find;
    }

    synchronized KernelToolchain get() {
      if (toolchain == null && missing == null) {
        try {
          toolchain = find.apply(toolkit);
          LOG.debug("kernels can be compiled by {}", toolchain.version());
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
    for (Found found : List.of(nvrtc, nvcc)) {
      try {
        lines.add(found.get().version());
      } catch (FluxCclException e) {
        lines.add(e.getMessage());
      }
    }
    return lines;
  }

  /**
   * Compiles, or finds what was compiled before from the same.
   *
   * @param source what
   * @param options how
   * @param capability the GPU's compute capability, as in 90
   * @return what the driver can load
   * @throws io.fluxccl.InvalidUsage with the compiler's words if the source is wrong
   * @throws DeviceFailure if there is no compiler, saying where it was looked for, or it fails
   */
  KernelImage compile(KernelSource source, CudaCompileOptions options, int capability) {
    KernelToolchain toolchain = toolchain(source.name(), options.compiler());
    KernelToolchain.Target target = KernelToolchain.Target.of(capability, options, toolchain);
    String key =
        "sm" + capability + "-" + KernelCache.key(parts(source, options, toolchain, target));
    byte[] kept = cache.get(key).orElse(null);
    if (kept != null) {
      return new KernelImage(kept);
    }
    long start = System.nanoTime();
    KernelImage image = toolchain.compile(source, options, target);
    LOG.debug(
        "{} compiled {} for sm_{} in {} ms",
        toolchain.version(),
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
    List<String> parts = new ArrayList<>();
    parts.add(GENERATION);
    parts.add(toolchain.version());
    parts.add(target.option());
    parts.add(source.name());
    parts.add(source.text());
    parts.addAll(options.options());
    parts.add("packed");
    source.packed().forEach((name, text) -> parts.addAll(List.of(name, text)));
    parts.add("files");
    source.files().forEach((path, text) -> parts.addAll(List.of(path.toString(), text)));
    options.includePaths().forEach(path -> parts.add(path.toAbsolutePath().toString()));
    return parts;
  }

  private KernelToolchain toolchain(String name, CudaCompileOptions.Compiler wanted) {
    List<Map.Entry<String, Found>> candidates = new ArrayList<>();
    if (wanted != CudaCompileOptions.Compiler.NVCC) {
      candidates.add(Map.entry("NVRTC", nvrtc));
    }
    if (wanted != CudaCompileOptions.Compiler.NVRTC) {
      candidates.add(Map.entry("nvcc", nvcc));
    }
    List<String> reasons = new ArrayList<>();
    for (Map.Entry<String, Found> candidate : candidates) {
      try {
        return candidate.getValue().get();
      } catch (FluxCclException e) {
        reasons.add(candidate.getKey() + ": " + e.getMessage());
      }
    }
    throw new DeviceFailure(
        0,
        "NO_COMPILER",
        "compiling " + name + " needs a CUDA compiler. " + String.join(". ", reasons));
  }
}
