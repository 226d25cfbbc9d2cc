// SPDX-License-Identifier: Apache-2.0
package com.example;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

/** The jar fluxccl-cli in a folder with the jars that it depends on. */
class CommandLineTest {
  @Test
  void shouldRunByJavaJar() throws Exception {
    Path jar;
    try (DirectoryStream<Path> jars =
        Files.newDirectoryStream(Path.of("target/lib"), "fluxccl-cli-*.jar")) {
      jar = jars.iterator().next();
    }
    Path output = Path.of("target/output.txt");
    Process process =
        new ProcessBuilder(
                Path.of(System.getProperty("java.home"), "bin/java").toString(),
                "-XX:TieredStopAtLevel=1",
                "-jar",
                jar.toString(),
                "perf",
                "all-reduce",
                "--ranks",
                "2",
                "-b",
                "1K",
                "-e",
                "1K",
                "--jit-warmup",
                "0")
            .redirectErrorStream(true)
            .redirectOutput(output.toFile())
            .start();
    assertTrue(process.waitFor(600, TimeUnit.SECONDS));
    assertEquals(0, process.exitValue(), () -> read(output));
    assertTrue(read(output).contains("1024"), () -> read(output));
  }

  private static String read(Path file) {
    try {
      return Files.readString(file);
    } catch (java.io.IOException e) {
      return e.toString();
    }
  }
}
