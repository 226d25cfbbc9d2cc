// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.testing;

import java.io.File;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;

/** NVIDIA's compute-sanitizer around the process of a test class. */
public final class Sanitizer {
  /** The system property of tests that says under which tool they run. */
  public static final String PROPERTY = "fluxccl.test.sanitizer";

  /** Factor by which a class may take longer under the sanitizer. */
  static final int SLOWER = 5;

  private static final String NAME = "compute-sanitizer";

  private Sanitizer() {}

  /**
   * Returns the prefix of the command of a test class.
   *
   * @param tool memcheck, racecheck, initcheck or synccheck
   * @param reports folder for its findings, one file for each process
   */
  static List<String> command(String tool, Path reports, String className) {
    List<String> command =
        new ArrayList<>(List.of(find(), "--tool", tool, "--target-processes", "all"));
    // Any finding ends the process with this code, which makes the class fail.
    command.addAll(List.of("--error-exitcode", "86", "--print-limit", "20"));
    Path log = reports.resolve(className + "." + tool + ".%p.log");
    command.addAll(List.of("--log-file", log.toString()));
    if (tool.equals("memcheck")) {
      // A driver call that returns an error is no finding: the library finds the end of a kernel's
      // parameters that way.
      command.addAll(List.of("--report-api-errors", "no"));
    }
    return command;
  }

  private static String find() {
    Map<String, String> variables = System.getenv();
    String path = variables.getOrDefault("PATH", "");
    List<String> folders = new ArrayList<>(List.of(path.split(File.pathSeparator)));
    folders.add(variables.getOrDefault("CUDA_HOME", "/usr/local/cuda") + "/bin");
    folders.add("/usr/local/cuda/bin");
    try (Stream<Path> installed = Files.list(Path.of("/usr/local"))) {
      installed
          .filter(folder -> folder.getFileName().toString().startsWith("cuda-"))
          .forEach(folder -> folders.add(folder + "/bin"));
    } catch (java.io.IOException e) {
      // There is none, then.
    }
    return folders.stream()
        .map(folder -> Path.of(folder, NAME))
        .filter(Files::isExecutable)
        .findFirst()
        .orElseThrow(
            () -> new IllegalStateException(NAME + " is not on the PATH nor under /usr/local/cuda"))
        .toString();
  }
}
