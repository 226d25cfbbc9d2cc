// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import io.fluxccl.InvalidUsage;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;

/**
 * CUDA source and the headers that it includes, directly or not, from FluxCCL or the user's include
 * path. The compiler finds its own headers.
 *
 * @param name what messages call it
 * @param text the source
 * @param packed FluxCCL's headers by their path; NVRTC gets them from memory, nvcc as files
 * @param files the user's headers, for the cache's key; the compilers read them by themselves
 */
record KernelSource(String name, String text, Map<String, String> packed, Map<Path, String> files) {
  /** The folder of FluxCCL's headers and sources in the jars. */
  private static final String PACKED_ROOT = "io/fluxccl/cuda/";

  private static final List<String> PACKED_FOLDERS = List.of("include/", "");

  private static final Pattern INCLUDE =
      Pattern.compile("^([ \\t]*#[ \\t]*include[ \\t]*)[\"<]([^\">\\n]+)[\">]", Pattern.MULTILINE);

  /**
   * Collects what a source includes.
   *
   * @param name what messages call it
   * @param text the source
   * @param includePaths folders that are searched before FluxCCL's headers
   * @throws InvalidUsage if a header can't be read
   */
  static KernelSource of(String name, String text, List<Path> includePaths) {
    Collector collector = new Collector(includePaths);
    String rewritten = collector.visit(text, "", null);
    return new KernelSource(name, rewritten, collector.packed, collector.files);
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
    ClassLoader loader = KernelSource.class.getClassLoader();
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
