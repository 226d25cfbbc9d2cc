// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import io.fluxccl.LocalFiles;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;

/**
 * Finds the parts of CUDA on this machine. Reads the file system only.
 *
 * @param environment the process's or a test's variables
 */
public record CudaToolkit(Map<String, String> environment) {
  /** Environment: the file of libnvrtc, or the folder that it lies in. */
  static final String NVRTC_VARIABLE = "FLUXCCL_NVRTC";

  private static final List<String> ENDINGS = List.of(".so.13", ".so.12", ".so");

  private static final List<String> LIBRARY_FOLDERS =
      List.of("lib64", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib");

  private List<Path> namedHomes() {
    return Stream.of("CUDA_HOME", "CUDA_PATH").flatMap(this::paths).toList();
  }

  private Stream<Path> paths(String variable) {
    return Stream.of(environment.getOrDefault(variable, "").split(":"))
        .filter(path -> !path.isEmpty())
        .map(Path::of);
  }

  /** Returns the toolkits' folders, the likeliest first. */
  List<Path> homes() {
    List<Path> homes = new ArrayList<>(namedHomes());
    homes.add(Path.of("/usr/local/cuda"));
    try (Stream<Path> found = Files.list(Path.of("/usr/local"))) {
      found
          .filter(path -> path.getFileName().toString().startsWith("cuda-"))
          .sorted(Comparator.reverseOrder())
          .forEach(homes::add);
    } catch (IOException e) {
      // A missing folder holds nothing.
    }
    return homes.stream().distinct().toList();
  }

  List<String> nvrtcCandidates() {
    return candidates(NVRTC_VARIABLE, "libnvrtc");
  }

  /**
   * Returns the arguments for dlopen, in order. If the user has named a file, returns only that.
   * Otherwise returns bare names, which the system's loader searches, and then the files of the
   * toolkits.
   *
   * @param variable the environment variable with the user's file or folder
   * @param library the library's name, as in {@code libnvrtc}
   */
  public List<String> candidates(String variable, String library) {
    List<String> names = ENDINGS.stream().map(library::concat).toList();
    String given = environment.getOrDefault(variable, "");
    if (!given.isEmpty()) {
      Path path = LocalFiles.path(variable, given).toAbsolutePath();
      return Files.isDirectory(path) ? inFolder(path, names) : List.of(path.toString());
    }
    List<String> candidates = new ArrayList<>(names);
    homes().stream()
        .flatMap(home -> LIBRARY_FOLDERS.stream().map(home::resolve))
        .filter(Files::isDirectory)
        .forEach(libraries -> candidates.addAll(inFolder(libraries, names)));
    return candidates;
  }

  private static List<String> inFolder(Path folder, List<String> names) {
    return names.stream().map(name -> folder.resolve(name).toString()).toList();
  }

  /** Returns the possible paths of nvcc, in order. */
  List<Path> nvccCandidates() {
    return Stream.of(
            namedHomes().stream().map(home -> home.resolve("bin/nvcc")),
            paths("PATH").map(folder -> folder.resolve("nvcc")),
            homes().stream().map(home -> home.resolve("bin/nvcc")))
        .flatMap(candidates -> candidates)
        .distinct()
        .toList();
  }

  /**
   * Returns the folders of CUDA's headers, such as {@code cuda_fp16.h}, which NVRTC does not
   * contain.
   *
   * @param library the file of the NVRTC that is used: headers of the same toolkit come first
   */
  List<Path> headerFolders(Path library) {
    List<Path> folders = new ArrayList<>();
    try {
      Path real = library.toRealPath();
      for (Path up = real.getParent(); up != null && folders.size() < 3; up = up.getParent()) {
        folders.add(up.resolve("include"));
      }
    } catch (IOException e) {
      // A library without a file has no folder.
    }
    homes().forEach(home -> folders.add(home.resolve("include")));
    return folders.stream()
        .filter(folder -> Files.isRegularFile(folder.resolve("cuda_fp16.h")))
        .limit(1)
        .toList();
  }
}
