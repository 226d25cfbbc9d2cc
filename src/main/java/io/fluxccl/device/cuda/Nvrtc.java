package io.fluxccl.device.cuda;

import io.fluxccl.DeviceFailure;
import io.fluxccl.InvalidUsage;
import io.fluxccl.NativeLibrary;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/** NVIDIA's run-time compiler, the first that can be opened. */
final class Nvrtc implements KernelToolchain {
  private static final int NVRTC_ERROR_INVALID_OPTION = 5;
  private static final int NVRTC_ERROR_COMPILATION = 6;

  private final long library;
  private final String version;
  private final int[] architectures;
  private final List<Path> headerFolders;

  private Nvrtc(long library, CudaToolkit toolkit) {
    this.library = library;
    int[] number = new int[2];
    NvrtcCalls.version(library, number);
    Path path = Path.of(new String(NvrtcCalls.path(library), StandardCharsets.UTF_8));
    this.version = "NVRTC " + number[0] + "." + number[1] + " (" + path + ")";
    this.architectures = NvrtcCalls.architectures(library);
    // It opens its other half by name, which finds nothing outside the loader's folders.
    Path builtins = path.resolveSibling("libnvrtc-builtins.so." + number[0] + "." + number[1]);
    if (Files.isRegularFile(builtins)) {
      NvrtcCalls.preload(bytes(builtins.toString()));
    }
    this.headerFolders = toolkit.headerFolders(path);
  }

  /**
   * Opens it.
   *
   * @throws DeviceFailure if there is none, with what was tried
   */
  static Nvrtc find(CudaToolkit toolkit) {
    NativeLibrary.require("NVRTC");
    List<String> candidates = toolkit.nvrtcCandidates();
    List<String> problems = new ArrayList<>();
    for (String candidate : candidates) {
      try {
        return new Nvrtc(NvrtcCalls.open(candidate.getBytes(StandardCharsets.UTF_8)), toolkit);
      } catch (UnsatisfiedLinkError e) {
        problems.add(e.getMessage());
      }
    }
    throw new DeviceFailure(
        0,
        "NVRTC_MISSING",
        String.format(
            "no libnvrtc found; looked for %s; install the CUDA toolkit's NVRTC or set %s"
                + " to its file or folder",
            String.join("; ", problems), CudaToolkit.NVRTC_VARIABLE));
  }

  @Override
  public String version() {
    return version;
  }

  @Override
  public int[] architectures() {
    return architectures.clone();
  }

  @Override
  public KernelImage compile(KernelSource source, CudaCompileOptions options, Target target) {
    // There is no host to compile for, yet NVRTC takes some lambdas in kernels for host code.
    List<String> all = new ArrayList<>(List.of("-std=c++17", "-default-device"));
    if (target.chosen()) {
      all.add(target.option());
    }
    options.includePaths().forEach(path -> all.add("-I" + path.toAbsolutePath()));
    headerFolders.forEach(path -> all.add("-I" + path));
    all.addAll(options.options());
    byte[][] result = new byte[2][];
    int status =
        NvrtcCalls.compile(
            library,
            bytes(source.text()),
            bytes(source.name()),
            source.packed().values().stream().map(Nvrtc::bytes).toArray(byte[][]::new),
            source.packed().keySet().stream().map(Nvrtc::bytes).toArray(byte[][]::new),
            all.stream().map(Nvrtc::bytes).toArray(byte[][]::new),
            target.cubin(),
            result);
    if (status != 0) {
      throw failure(source.name(), status, result[1], all);
    }
    if (result[0] == null || result[0].length == 0) {
      throw new DeviceFailure(
          0, "NVRTC_EMPTY", version + " made no code of " + source.name() + " with " + all);
    }
    return target.cubin() ? KernelImage.binary(result[0]) : KernelImage.ptx(result[0]);
  }

  private RuntimeException failure(String name, int status, byte[] log, List<String> options) {
    String text = log == null ? "" : new String(log, StandardCharsets.UTF_8).replace("\0", "");
    String word = new String(NvrtcCalls.describe(library, status), StandardCharsets.UTF_8);
    String message =
        version + " did not compile " + name + ": " + word + ", options " + options + "\n" + text;
    return status == NVRTC_ERROR_COMPILATION || status == NVRTC_ERROR_INVALID_OPTION
        ? new InvalidUsage(message.strip())
        : new DeviceFailure(status, word, message.strip());
  }

  private static byte[] bytes(String text) {
    return text.getBytes(StandardCharsets.UTF_8);
  }
}
