// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.testing;

import static org.assertj.core.api.Assertions.assertThat;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.File;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.ArrayList;
import java.util.List;
import java.util.zip.CRC32;

/** Builds what tests need in C; a test that needs it is skipped where there is no compiler. */
public final class NativePrograms {
  private static final Path BUILT = Path.of("target", "native-programs");

  private NativePrograms() {}

  /**
   * Returns a shared library of src/test/native, in the given folder and of the given name. It is
   * built once for all tests that want the same.
   *
   * @param options more for the compiler, for example {@code -DNAME=1}
   */
  public static Path sharedLibrary(String source, Path folder, String name, String... options)
      throws Exception {
    List<String> command = new ArrayList<>(List.of(options));
    command.add(Path.of("src/test/native", source).toString());
    CRC32 key = new CRC32();
    for (String word : command) {
      key.update(word.getBytes(StandardCharsets.UTF_8));
      if (word.endsWith(".c")) {
        key.update(Files.readAllBytes(Path.of(word)));
      }
    }
    Path built = BUILT.resolve(Long.toHexString(key.getValue()) + ".so");
    if (!Files.exists(built)) {
      Path unfinished = Files.createTempFile(Files.createDirectories(BUILT), "unfinished", ".so");
      command.addAll(0, List.of("-shared", "-o", unfinished.toString()));
      compile(command);
      Files.move(unfinished, built, StandardCopyOption.ATOMIC_MOVE);
    }
    return Files.copy(built, folder.resolve(name), StandardCopyOption.REPLACE_EXISTING);
  }

  /** Runs the compiler with the options that all have, and these. */
  public static void compile(List<String> options) {
    assumeTrue(isOnPath("gcc"), "no gcc on the PATH");
    List<String> command = new ArrayList<>(List.of("gcc", "-std=c11", "-O1", "-Wall", "-Wextra"));
    command.addAll(List.of("-Werror", "-fPIC"));
    command.addAll(options);
    TestJvms.run(command);
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
