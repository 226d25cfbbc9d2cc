// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.testing;

import static org.assertj.core.api.Assertions.assertThat;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/** Builds what tests need in C; a test that needs it is skipped where there is no compiler. */
public final class NativePrograms {
  private NativePrograms() {}

  /**
   * Builds a shared library of src/test/native, in the given folder and of the given name.
   *
   * @param options more for the compiler, for example {@code -DNAME=1}
   */
  public static Path sharedLibrary(String source, Path folder, String name, String... options)
      throws Exception {
    Path library = folder.resolve(name);
    List<String> command = new ArrayList<>(List.of("-shared", "-o", library.toString()));
    command.addAll(List.of(options));
    command.add(Path.of("src/test/native", source).toString());
    compile(command);
    return library;
  }

  /** Runs the compiler with the options that all have, and these. */
  public static void compile(List<String> options) throws Exception {
    assumeTrue(isOnPath("gcc"), "no gcc on the PATH");
    List<String> command = new ArrayList<>(List.of("gcc", "-std=c11", "-O1", "-Wall", "-Wextra"));
    command.addAll(List.of("-Werror", "-fPIC"));
    command.addAll(options);
    Process process = new ProcessBuilder(command).redirectErrorStream(true).start();
    String output = new String(process.getInputStream().readAllBytes());
    assertThat(process.waitFor()).as(output).isZero();
  }

  /** Whether a program of that name can be run. */
  public static boolean isOnPath(String program) {
    for (String folder : System.getenv().getOrDefault("PATH", "").split(File.pathSeparator)) {
      if (Files.isExecutable(Path.of(folder, program))) {
        return true;
      }
    }
    return false;
  }

  /** A program of one line of shell. */
  public static Path script(Path file, String line) throws IOException {
    Files.createDirectories(file.getParent());
    Files.writeString(file, "#!/bin/sh\n" + line + "\n");
    assertThat(file.toFile().setExecutable(true)).isTrue();
    return file;
  }
}
