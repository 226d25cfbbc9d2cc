// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.netplugin.vendor.NativeNetPlugin;
import io.fluxccl.testing.RequiresNativeLibrary;
import io.fluxccl.testing.Rounds;
import io.fluxccl.testing.TestNet;
import java.nio.file.Path;
import java.util.Map;
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
    String words = "perf all-reduce --transport NET --counts 100,300000 -n 2 -w 1 --jit-warmup 0";
    Cli perf =
        Cli.run(
            Cli.process(Main.class, words.split(" "))
                .arguments("--ranks", Integer.toString(Rounds.of(2, 4)))
                .variables(Map.of(NativeNetPlugin.VARIABLE, library.toString())));
    assertThat(perf.code()).as("%s", perf).isZero();
    assertThat(perf.out()).contains("Out of bounds values : 0 OK").contains("1200000");
  }
}
