// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import io.fluxccl.DeviceFailure;
import io.fluxccl.InvalidUsage;
import io.fluxccl.NativeLibrary;
import io.fluxccl.Text;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;

/**
 * The NCCL of this machine: the file that FLUXCCL_NCCL names, the one that the system's loader
 * finds, or one among the packages of a Python. It stays open. Thread-safe.
 *
 * @param handle the first argument of all functions of {@link NcclCalls}
 * @param path the file
 * @param version such as 2.28.9
 */
record NcclLibrary(long handle, String path, String version) {
  /** Environment variable with the file of libnccl. */
  static final String VARIABLE = "FLUXCCL_NCCL";

  private static final String FILE_NAME = "libnccl.so.2";
  private static final String IN_PACKAGES = "nvidia/nccl/lib/" + FILE_NAME;

  /** Folders that may hold packages of a Python; * is any name. */
  private static final List<String> PLACES =
      List.of(
          "/usr/local/lib/python3*/dist-packages",
          "/usr/local/lib/python3*/site-packages",
          "/usr/lib/python3/dist-packages",
          "/usr/lib/python3*/site-packages",
          "/opt/*/lib/python3*/site-packages",
          "/opt/*/envs/*/lib/python3*/site-packages");

  private static final int FAILED = 0;

  private static NcclLibrary of(long handle) {
    String path = new String(NcclCalls.path(handle), StandardCharsets.UTF_8);
    int[] number = new int[1];
    new NcclLibrary(handle, path, "").check(NcclCalls.version(handle, number), "ncclGetVersion");
    return new NcclLibrary(handle, path, versionOf(number[0]));
  }

  /** Returns the text of a version number, in the form of NCCL 2.9 and later. */
  static String versionOf(int number) {
    return number / 10_000 + "." + number / 100 % 100 + "." + number % 100;
  }

  /**
   * Opens the library.
   *
   * @param environment of the process
   * @throws InvalidUsage if there is none, with the places that were tried
   */
  static NcclLibrary open(Map<String, String> environment) {
    NativeLibrary.require("the comparison with NCCL");
    // NCCL's NVLink multicast can put a host's GPUs out of service when a process dies in it, and
    // FluxCCL has no such path. A variable that is set stays.
    NativeLibrary.setEnvironmentDefault("NCCL_NVLS_ENABLE", "0");
    List<String> refused = new ArrayList<>();
    for (String candidate : candidates(environment)) {
      try {
        long handle = NcclCalls.open(candidate.getBytes(StandardCharsets.UTF_8));
        if (handle != FAILED) {
          return of(handle);
        }
      } catch (UnsatisfiedLinkError e) {
        refused.add(candidate + " (" + e.getMessage() + ")");
      }
    }
    throw InvalidUsage.of(
        "there is no NCCL to compare with; set %s to its %s. Tried: %s",
        VARIABLE, FILE_NAME, String.join("; ", refused));
  }

  private static List<String> candidates(Map<String, String> environment) {
    String given = environment.get(VARIABLE);
    if (given != null && !given.isBlank()) {
      return List.of(given);
    }
    List<String> candidates = new ArrayList<>();
    candidates.add(FILE_NAME);
    String home = environment.get("VIRTUAL_ENV");
    if (home != null) {
      addPackages(candidates, home + "/lib/python3*/site-packages");
    }
    // Packages of the python3 on the PATH are in a folder beside that of the executable.
    for (String folder : environment.getOrDefault("PATH", "").split(":")) {
      Path python = Path.of(folder.isEmpty() ? "." : folder, "python3");
      if (Files.isExecutable(python) && python.toAbsolutePath().getNameCount() > 2) {
        Path prefix = python.toAbsolutePath().getParent().getParent();
        addPackages(candidates, prefix + "/lib/python3*/site-packages");
        addPackages(candidates, prefix + "/lib/python3*/dist-packages");
        break;
      }
    }
    PLACES.forEach(place -> addPackages(candidates, place));
    return candidates.stream().distinct().toList();
  }

  private static void addPackages(List<String> candidates, String pattern) {
    List<Path> folders = List.of(Path.of("/"));
    for (Path name : Path.of(pattern)) {
      folders = folders.stream().flatMap(folder -> matching(folder, name.toString())).toList();
    }
    folders.stream()
        .map(folder -> folder.resolve(IN_PACKAGES))
        .filter(Files::exists)
        .forEach(file -> candidates.add(file.toString()));
  }

  private static Stream<Path> matching(Path folder, String pattern) {
    if (!pattern.contains("*")) {
      return Stream.of(folder.resolve(pattern)).filter(Files::isDirectory);
    }
    List<Path> found = new ArrayList<>();
    try (DirectoryStream<Path> matching = Files.newDirectoryStream(folder, pattern)) {
      matching.forEach(found::add);
    } catch (IOException e) {
      return Stream.empty(); // a folder that can't be read holds no NCCL for this process
    }
    return found.stream();
  }

  /**
   * Checks a result.
   *
   * @throws DeviceFailure with NCCL's message, if the result is an error
   */
  void check(int result, String call) {
    if (result != 0) {
      String reason = new String(NcclCalls.describe(handle, result), StandardCharsets.UTF_8);
      String message = "%s failed: %s (%d); NCCL_DEBUG=WARN shows more";
      throw new DeviceFailure(result, "NCCL", Text.of(message, call, reason, result));
    }
  }
}
