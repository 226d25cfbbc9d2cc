// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.File;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.stream.Stream;

/** Paths of the CUDA sources, and compilers for them. */
final class CudaSources {
  /** The folder of the device API, as kernels include it. */
  static final Path INCLUDE = Path.of("src/main/cuda/include").toAbsolutePath();

  /** The kernels of tests. */
  static final Path TESTS = Path.of("src/test/resources/cuda").toAbsolutePath();

  private CudaSources() {}

  /** Returns the device API's headers, by file name. */
  static List<String> headers() {
    return filesIn(INCLUDE.resolve("fluxccl"), ".cuh").stream()
        .map(file -> file.getFileName().toString())
        .toList();
  }

  /**
   * The kernels of tests and of samples, but for those of the inference server, which its own tests
   * compile with the options that they need.
   */
  static List<Path> kernels() {
    Path samples = Path.of("samples").toAbsolutePath();
    List<Path> files = new ArrayList<>(filesIn(TESTS, ".cu"));
    filesIn(samples, ".cu").stream()
        .filter(file -> !file.startsWith(samples.resolve("inference-server")))
        .forEach(files::add);
    return files;
  }

  /** Returns the files in a folder and its folders whose names end so. */
  static List<Path> filesIn(Path folder, String ending) {
    try (Stream<Path> files = Files.walk(folder)) {
      return files
          .filter(file -> Files.isRegularFile(file) && file.toString().endsWith(ending))
          .sorted()
          .toList();
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  /** Returns whether a program is on the path. */
  static boolean isInstalled(String program) {
    return Arrays.stream(System.getenv().getOrDefault("PATH", "").split(File.pathSeparator))
        .anyMatch(folder -> Files.isExecutable(Path.of(folder, program)));
  }

  /** Compiles a source of C++ by g++, with all warnings as errors; returns what it prints. */
  static String gcc(Path source, String... options) throws IOException, InterruptedException {
    assumeTrue(isInstalled("g++"), "there is no g++");
    List<String> command = new ArrayList<>(List.of("g++", "-std=c++17", "-I" + INCLUDE));
    command.addAll(List.of("-Wall", "-Wextra", "-Wpedantic", "-Werror", source.toString()));
    command.addAll(List.of(options));
    return run(command.toArray(String[]::new));
  }

  /** Compiles a CUDA source by nvcc to a file; returns what it prints. */
  static String nvcc(Path source, Path target, String... options)
      throws IOException, InterruptedException {
    assumeTrue(isInstalled("nvcc"), "there is no nvcc");
    List<String> command = new ArrayList<>(List.of("nvcc", "-std=c++17", "-arch=sm_75"));
    command.addAll(List.of("-I" + INCLUDE, source.toString(), "-o", target.toString()));
    command.addAll(List.of(options));
    return run(command.toArray(String[]::new));
  }

  /**
   * Runs a program.
   *
   * @return its output, and its exit code if it failed
   */
  static String run(String... command) throws IOException, InterruptedException {
    Process process = new ProcessBuilder(command).redirectErrorStream(true).start();
    String said = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
    int status = process.waitFor();
    return status == 0 ? said : said + "\nexit status " + status + " of " + List.of(command);
  }
}
