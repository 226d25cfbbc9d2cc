// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import static org.assertj.core.api.Assertions.assertThat;

import java.io.File;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

@Tag("multiprocess")
class NonBlockingTest {
  private static final long SECONDS = 120;

  @Test
  void shouldBlockNoThreadOnWhichNothingMayBlock() throws Exception {
    List<String> command = new ArrayList<>();
    command.add(System.getProperty("java.home") + File.separator + "bin" + File.separator + "java");
    command.addAll(List.of(System.getProperty("fluxccl.jvm.args").trim().split("\\s+")));
    // What BlockHound needs in order to change classes of the JDK.
    command.add("-XX:+AllowRedefinitionToAddDeleteMethods");
    if (Runtime.version().feature() >= 21) {
      command.add("-XX:+EnableDynamicAgentLoading");
    }
    command.addAll(List.of("-cp", System.getProperty("java.class.path")));
    command.add(NonBlockingRun.class.getName());
    Process process = new ProcessBuilder(command).redirectErrorStream(true).start();
    process
        .onExit()
        .orTimeout(SECONDS, TimeUnit.SECONDS)
        .exceptionally(late -> process.destroyForcibly());
    String output = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
    assertThat(process.waitFor(60, TimeUnit.SECONDS)).as(output).isTrue();
    assertThat(output).contains("watching: true").contains("nothing blocked");
    assertThat(output).contains("refused to sleep on rank-");
    assertThat(output).doesNotContain("BlockingOperationError");
    assertThat(process.exitValue()).isZero();
  }
}
