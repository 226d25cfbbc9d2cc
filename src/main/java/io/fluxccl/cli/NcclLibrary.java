package io.fluxccl.cli;

import io.fluxccl.DeviceFailure;
import io.fluxccl.InvalidUsage;
import io.fluxccl.NativeLibrary;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/**
 * NCCL as this machine has it: where FLUXCCL_NCCL says, where the system's loader finds it, or in a
 * Python's packages. Opened once and never closed; for any thread.
 */
final class NcclLibrary {
  /** Environment variable: libnccl's file. */
  static final String VARIABLE = "FLUXCCL_NCCL";

  private static final String FILE_NAME = "libnccl.so.2";
  private static final String IN_PACKAGES = "nvidia/nccl/lib/" + FILE_NAME;

  /** Folders that may have a Python's packages; * is any name. */
  private static final List<String> PLACES =
      List.of(
          "/usr/local/lib/python3*/dist-packages",
          "/usr/local/lib/python3*/site-packages",
          "/usr/lib/python3/dist-packages",
          "/usr/lib/python3*/site-packages",
          "/opt/*/lib/python3*/site-packages",
          "/opt/*/envs/*/lib/python3*/site-packages");

  private static final int FAILED = 0;

  private final long handle;
  private final String path;
  private final String version;

  private NcclLibrary(long handle) {
    this.handle = handle;
    this.path = new String(NcclCalls.path(handle), StandardCharsets.UTF_8);
    int[] number = new int[1];
    check(NcclCalls.version(handle, number), "ncclGetVersion");
    this.version = versionOf(number[0]);
  }

  /** As NCCL has written versions since 2.9. */
  static String versionOf(int number) {
    return number / 10_000 + "." + number / 100 % 100 + "." + number % 100;
  }

  /**
   * Opens it.
   *
   * @param environment the process's
   * @throws InvalidUsage if there is none, saying where it was looked for
   */
  static NcclLibrary open(Map<String, String> environment) {
    NativeLibrary.require("the comparison with NCCL");
    // NCCL's way over NVLink multicast can put a host's GPUs out of service when a process dies in
    // it, and this library has none. Whoever sets the variable decides.
    NativeLibrary.setEnvironmentDefault("NCCL_NVLS_ENABLE", "0");
    List<String> refused = new ArrayList<>();
    for (String candidate : candidates(environment)) {
      try {
        long handle = NcclCalls.open(candidate.getBytes(StandardCharsets.UTF_8));
        if (handle != FAILED) {
          return new NcclLibrary(handle);
        }
      } catch (UnsatisfiedLinkError e) {
        refused.add(candidate + " (" + e.getMessage() + ")");
      }
    }
    throw new InvalidUsage(
        "there is no NCCL to compare with; set "
            + VARIABLE
            + " to its "
            + FILE_NAME
            + ". Tried: "
            + String.join("; ", refused));
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
    // The python3 on the PATH belongs to the folder beside its own.
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
      List<Path> deeper = new ArrayList<>();
      for (Path folder : folders) {
        addMatching(deeper, folder, name.toString());
      }
      folders = deeper;
    }
    for (Path folder : folders) {
      Path file = folder.resolve(IN_PACKAGES);
      if (Files.exists(file)) {
        candidates.add(file.toString());
      }
    }
  }

  private static void addMatching(List<Path> found, Path folder, String pattern) {
    if (!pattern.contains("*")) {
      if (Files.isDirectory(folder.resolve(pattern))) {
        found.add(folder.resolve(pattern));
      }
      return;
    }
    try (DirectoryStream<Path> matching = Files.newDirectoryStream(folder, pattern)) {
      matching.forEach(found::add);
    } catch (IOException e) {
      return; // what can't be looked into is as good as not there
    }
  }

  /** What the functions of {@link NcclCalls} take. */
  long handle() {
    return handle;
  }

  /** As in 2.28.9. */
  String version() {
    return version;
  }

  /** Its file. */
  String path() {
    return path;
  }

  /**
   * Does nothing with a success.
   *
   * @throws DeviceFailure that says what NCCL says
   */
  void check(int result, String call) {
    if (result != 0) {
      throw new DeviceFailure(
          result,
          "NCCL",
          call
              + " failed: "
              + new String(NcclCalls.describe(handle, result), StandardCharsets.UTF_8)
              + " ("
              + result
              + "); NCCL_DEBUG=WARN says more");
    }
  }
}
