// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.netplugin.vendor.NativeNetPlugin;
import io.fluxccl.testing.RequiresNativeLibrary;
import io.fluxccl.testing.Rounds;
import io.fluxccl.testing.TestNet;
import java.io.File;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** Collectives of ranks that are processes, over a vendor's plugin that the environment names. */
@Tag("multiprocess")
@RequiresNativeLibrary
@Timeout(180)
class PerfOverNetTest {
  @TempDir private Path folder;

  @Test
  void shouldReduceRightOverAPluginThatTheEnvironmentNames() throws Exception {
    Path library = TestNet.library(folder, 9);
    File out = folder.resolve("out").toFile();
    List<String> command = PerfCommand.javaCommand(Main.class.getName());
    command.addAll(
        List.of(
            "perf",
            "all-reduce",
            "--ranks",
            Integer.toString(Rounds.of(2, 4)),
            "--transport",
            "NET",
            "--counts",
            "100,300000",
            "-n",
            "2",
            "-w",
            "1",
            "--jit-warmup",
            "0"));
    ProcessBuilder builder = new ProcessBuilder(command);
    builder.environment().put(NativeNetPlugin.VARIABLE, library.toString());
    Process process = builder.redirectErrorStream(true).redirectOutput(out).start();
    try {
      assertThat(process.waitFor(150, TimeUnit.SECONDS)).isTrue();
      String said = Files.readString(out.toPath());
      assertThat(process.exitValue()).as(said).isZero();
      assertThat(said).contains("Out of bounds values : 0 OK").contains("1200000");
    } finally {
      process.descendants().forEach(ProcessHandle::destroyForcibly);
      process.destroyForcibly();
    }
  }
}
