// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import io.fluxccl.DeviceFailure;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.device.cuda.CudaCompileOptions.Compiler;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.EnumMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;
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

  private static final List<Compiler> COMPILERS = List.of(Compiler.NVRTC, Compiler.NVCC);

  /** The compiler of this process, found by its environment. */
  static final KernelCompiler PROCESS =
      new KernelCompiler(new CudaToolkit(System.getenv()), KernelCache.of(System.getenv()));

  private final CudaToolkit toolkit;
  private final KernelCache cache;
  private final Map<Compiler, Found> found = new EnumMap<>(Compiler.class); // guarded by this

  KernelCompiler(CudaToolkit toolkit, KernelCache cache) {
    this.toolkit = toolkit;
    this.cache = cache;
  }

  /**
   * The result of the search for a compiler.
   *
   * @param toolchain the compiler, or null
   * @param description its version, or why it is missing
   */
  private record Found(Toolchain toolchain, String description) {}

  /** Searches for a compiler at its first use. */
  private synchronized Found find(Compiler kind) {
    return found.computeIfAbsent(
        kind,
        key -> {
          try {
            Toolchain toolchain = key == Compiler.NVRTC ? Nvrtc.find(toolkit) : Nvcc.find(toolkit);
            LOG.debug("kernels can be compiled by {}", toolchain.version);
            return new Found(toolchain, toolchain.version);
          } catch (FluxCclException e) {
            return new Found(null, e.getMessage());
          }
        });
  }

  /** Returns a line of text for each compiler: its version, or why it is missing. */
  List<String> describe() {
    return COMPILERS.stream().map(kind -> find(kind).description).toList();
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
  CudaModule.Image compile(Source source, CudaCompileOptions options, int capability) {
    Toolchain toolchain = toolchain(source.name(), options.compiler());
    Target target = toolchain.target(capability, options);
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
      Source source, CudaCompileOptions options, Toolchain toolchain, Target target) {
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

  private Toolchain toolchain(String name, Compiler wanted) {
    List<String> reasons = new ArrayList<>();
    for (Compiler kind : wanted == Compiler.AUTO ? COMPILERS : List.of(wanted)) {
      Found result = find(kind);
      if (result.toolchain != null) {
        return result.toolchain;
      }
      reasons.add(kind + ": " + result.description);
    }
    throw new DeviceFailure(
        0,
        "NO_COMPILER",
        "compiling " + name + " needs a CUDA compiler. " + String.join(". ", reasons));
  }

  /** A compiler for CUDA source. Thread-safe. */
  abstract static class Toolchain {
    /** Its name and version, which identify its output for a source. */
    final String version;

    /** The GPU architectures that it can generate code for, as in 90. */
    private final int[] architectures;

    Toolchain(String version, int[] architectures) {
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
    abstract CudaModule.Image compile(Source source, CudaCompileOptions options, Target target);

    /**
     * Returns the options that every compiler takes: language, architecture, headers, the user's.
     */
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

  /**
   * CUDA source and the headers that it includes, directly or not, from FluxCCL or the user's
   * include path. The compiler finds its own headers.
   *
   * @param name what messages call it
   * @param text the source
   * @param packed FluxCCL's headers by their path; NVRTC gets them from memory, nvcc as files
   * @param files the user's headers, for the cache's key; the compilers read them by themselves
   */
  record Source(String name, String text, Map<String, String> packed, Map<Path, String> files) {
    /** The folder of FluxCCL's headers and sources in the jars. */
    private static final String PACKED_ROOT = "io/fluxccl/cuda/";

    private static final List<String> PACKED_FOLDERS = List.of("include/", "");

    private static final Pattern INCLUDE =
        Pattern.compile(
            "^([ \\t]*#[ \\t]*include[ \\t]*)[\"<]([^\">\\n]+)[\">]", Pattern.MULTILINE);

    /**
     * Collects what a source includes.
     *
     * @param name what messages call it
     * @param text the source
     * @param includePaths folders that are searched before FluxCCL's headers
     * @throws InvalidUsage if a header can't be read
     */
    static Source of(String name, String text, List<Path> includePaths) {
      Collector collector = new Collector(includePaths);
      String rewritten = collector.visit(text, "", null);
      return new Source(name, rewritten, collector.packed, collector.files);
    }

    /** Collects included headers, and rewrites includes of FluxCCL's headers to one spelling. */
    private static final class Collector {
      final Map<String, String> packed = new TreeMap<>();
      final Map<Path, String> files = new TreeMap<>();
      private final List<Path> includePaths;

      Collector(List<Path> includePaths) {
        this.includePaths = includePaths;
      }

      /**
       * Processes one file, from the jar or from a folder on disk, and returns its rewritten text.
       */
      String visit(String text, String packedFolder, Path folder) {
        StringBuilder out = new StringBuilder();
        Matcher include = INCLUDE.matcher(text);
        while (include.find()) {
          String ours = follow(include.group(2), packedFolder, folder);
          // NVRTC identifies headers by name: "a.cuh" and <fluxccl/a.cuh> would be two headers.
          include.appendReplacement(
              out,
              Matcher.quoteReplacement(
                  ours == null ? include.group() : include.group(1) + '"' + ours + '"'));
        }
        return include.appendTail(out).toString();
      }

      /** Returns the path of a header of FluxCCL's, or null. */
      private String follow(String wanted, String packedFolder, Path folder) {
        Path file = findFile(wanted, folder, includePaths);
        if (file != null) {
          if (!files.containsKey(file)) {
            String content = read(file);
            files.put(file, content);
            visit(content, "", file.getParent()); // the compiler itself reads the unchanged file
          }
          return null;
        }
        for (String path : List.of(packedFolder + wanted, wanted)) {
          if (packed.containsKey(path)) {
            return path;
          }
          String content = readPacked(path);
          if (content != null) {
            packed.put(path, ""); // headers may include each other
            packed.put(path, visit(content, path.substring(0, path.lastIndexOf('/') + 1), null));
            return path;
          }
        }
        return null;
      }
    }

    /** Returns a source in FluxCCL's jars by its path under io/fluxccl/cuda, or null. */
    static String readPacked(String path) {
      ClassLoader loader = Source.class.getClassLoader();
      if (path.startsWith("/") || path.contains("..")) {
        return null;
      }
      for (String folder : PACKED_FOLDERS) {
        try (InputStream in = loader.getResourceAsStream(PACKED_ROOT + folder + path)) {
          if (in != null) {
            return new String(in.readAllBytes(), StandardCharsets.UTF_8);
          }
        } catch (IOException e) {
          throw new UncheckedIOException("reading " + path + " from FluxCCL's jar", e);
        }
      }
      return null;
    }

    private static Path findFile(String wanted, Path folder, List<Path> includePaths) {
      return Stream.concat(Stream.ofNullable(folder), includePaths.stream())
          .map(path -> path.resolve(wanted))
          .filter(Files::isRegularFile)
          .findFirst()
          .map(path -> path.toAbsolutePath().normalize())
          .orElse(null);
    }

    /** Returns a file of CUDA source as text. */
    static String read(Path file) {
      return new String(readBytes(file), StandardCharsets.UTF_8);
    }

    /** Returns the bytes of a file of kernels. */
    static byte[] readBytes(Path file) {
      try {
        return Files.readAllBytes(file);
      } catch (IOException e) {
        throw new InvalidUsage("kernels in " + file + " can't be read: " + e, e);
      }
    }
  }
}
