// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import io.fluxccl.DeviceFailure;
import io.fluxccl.InvalidUsage;
import io.fluxccl.NativeLibrary;
import io.fluxccl.Text;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;

/** NVIDIA's run-time compiler, the first that can be opened. */
final class Nvrtc extends KernelCompiler.Toolchain {
  private static final int NVRTC_ERROR_INVALID_OPTION = 5;
  private static final int NVRTC_ERROR_COMPILATION = 6;

  private final long library;
  private final List<Path> headerFolders;

  private Nvrtc(long library, String version, List<Path> headerFolders) {
    super(version, architectures(library));
    this.library = library;
    this.headerFolders = headerFolders;
  }

  /**
   * Opens it.
   *
   * @throws DeviceFailure if there is none; the message lists the candidates
   */
  static Nvrtc find(CudaToolkit toolkit) {
    NativeLibrary.require("NVRTC");
    List<String> candidates = toolkit.nvrtcCandidates();
    List<String> problems = new ArrayList<>();
    for (String candidate : candidates) {
      try {
        return of(open(bytes(candidate)), toolkit);
      } catch (UnsatisfiedLinkError e) {
        problems.add(e.getMessage());
      }
    }
    throw new DeviceFailure(
        0,
        "NVRTC_MISSING",
        Text.of(
            "no libnvrtc found; looked for %s; install the CUDA toolkit's NVRTC or set %s"
                + " to its file or folder",
            String.join("; ", problems), CudaToolkit.NVRTC_VARIABLE));
  }

  private static Nvrtc of(long library, CudaToolkit toolkit) {
    int[] number = new int[2];
    version(library, number);
    Path path = Path.of(new String(path(library), StandardCharsets.UTF_8));
    // NVRTC opens its builtins library by name, which fails outside the loader's folders.
    Path builtins = path.resolveSibling("libnvrtc-builtins.so." + number[0] + "." + number[1]);
    if (Files.isRegularFile(builtins)) {
      preload(bytes(builtins.toString()));
    }
    String version = "NVRTC " + number[0] + "." + number[1] + " (" + path + ")";
    return new Nvrtc(library, version, toolkit.headerFolders(path));
  }

  @Override
  CudaModule.Image compile(
      KernelCompiler.Source source, CudaCompileOptions options, KernelCompiler.Target target) {
    List<String> all = arguments(target, options, headerFolders);
    // NVRTC compiles no host code, but treats some lambdas in kernels as host code.
    all.add(0, "-default-device");
    byte[][] result = new byte[2][];
    int status =
        compile(
            library,
            bytes(source.text()),
            bytes(source.name()),
            bytes(source.packed().values()),
            bytes(source.packed().keySet()),
            bytes(all),
            target.cubin(),
            result);
    if (status != 0) {
      throw failure(source.name(), status, result[1], all);
    }
    if (result[0] == null || result[0].length == 0) {
      throw new DeviceFailure(
          0, "NVRTC_EMPTY", version + " made no code of " + source.name() + " with " + all);
    }
    return target.image(result[0]);
  }

  private RuntimeException failure(String name, int status, byte[] log, List<String> options) {
    String text = log == null ? "" : new String(log, StandardCharsets.UTF_8).replace("\0", "");
    String word = new String(describe(library, status), StandardCharsets.UTF_8);
    String message =
        version + " did not compile " + name + ": " + word + ", options " + options + "\n" + text;
    return status == NVRTC_ERROR_COMPILATION || status == NVRTC_ERROR_INVALID_OPTION
        ? new InvalidUsage(message.strip())
        : new DeviceFailure(status, word, message.strip());
  }

  private static byte[][] bytes(Collection<String> texts) {
    return texts.stream().map(Nvrtc::bytes).toArray(byte[][]::new);
  }

  private static byte[] bytes(String text) {
    return text.getBytes(StandardCharsets.UTF_8);
  }

  // Functions of libnvrtc. Strings are bytes without a NUL.

  /**
   * Opens the library until the process ends; throws UnsatisfiedLinkError with the loader's
   * message.
   */
  private static native long open(byte[] path);

  /** Loads a library that NVRTC opens by name; returns whether it was loaded. */
  private static native boolean preload(byte[] path);

  /** Returns the library's file. */
  private static native byte[] path(long library);

  /** Its version, major and minor; an nvrtcResult. */
  private static native int version(long library, int[] majorAndMinor);

  /** Returns the architectures that it can generate code for, as in 90, ascending. */
  private static native int[] architectures(long library);

  /** Returns NVRTC's name of a result. */
  private static native byte[] describe(long library, int status);

  /** Compiles; {@code result[0]} is the image, {@code result[1]} the log; an nvrtcResult. */
  private static native int compile(
      long library,
      byte[] source,
      byte[] name,
      byte[][] headers,
      byte[][] headerNames,
      byte[][] options,
      boolean cubin,
      byte[][] result);
}
