// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.faults;

import static org.assertj.core.api.Assertions.assertThat;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.fluxccl.cli.Main;
import io.fluxccl.testing.TestJvms;
import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.api.parallel.Execution;
import org.junit.jupiter.api.parallel.ExecutionMode;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** The command line where the disk is full, or an address of the loopback is missing. */
@Tag("faults")
@Timeout(300)
@Execution(ExecutionMode.CONCURRENT)
class CommandLineFaultsTest {
  private static final File FULL_DISK = new File("/dev/full");
  private static final String PERF =
      "perf all-reduce --ranks 2 --device host -b 1K -e 1K -n 1 -w 1 --jit-warmup 0";

  @TempDir private Path folder;

  /** Runs the command line as arguments of a prefix command, and returns its exit code. */
  private int run(List<String> prefix, String words, File out) throws Exception {
    List<String> command = new ArrayList<>(prefix);
    command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
    command.addAll(TestJvms.ofBuild());
    command.addAll(List.of("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"));
    command.addAll(List.of("-cp", System.getProperty("java.class.path"), Main.class.getName()));
    command.addAll(List.of(words.split(" ")));
    Process process =
        new ProcessBuilder(command)
            .redirectOutput(out)
            .redirectError(folder.resolve("err").toFile())
            .start();
    assertThat(process.waitFor(200, TimeUnit.SECONDS)).isTrue();
    return process.exitValue();
  }

  private String err() throws IOException {
    return Files.readString(folder.resolve("err"));
  }

  @ParameterizedTest
  @ValueSource(strings = {"info", "info --json", PERF, "launch -n 2 -- echo said", "--help"})
  void shouldFailWhenItsOutputFindsNoSpace(String words) throws Exception {
    assumeTrue(FULL_DISK.exists(), "no " + FULL_DISK);
    assertThat(run(List.of(), words, FULL_DISK)).as(err()).isNotZero();
    assertThat(err()).contains("standard output can't be written");
  }

  /** Runs it in a network namespace of its own, after a line of shell. */
  private int runApart(String shell, String words) throws Exception {
    List<String> prefix = List.of("unshare", "-n", "sh", "-c", shell + " exec \"$@\"", "sh");
    return run(prefix, words, folder.resolve("out").toFile());
  }

  private static void requireNamespaces() {
    assumeTrue(TwoHosts.missing().isEmpty(), "no network namespaces");
  }

  @Test
  void shouldNameTheRemedyIfTheLoopbackInterfaceIsDown() throws Exception {
    requireNamespaces();
    assertThat(runApart("", "launch -n 2 -- true")).isNotZero();
    assertThat(err()).contains("127.0.0.1").contains("ip link set lo up");
  }

  @Test
  void shouldMeetAtTheOtherLoopbackWhereTheFirstIsMissing() throws Exception {
    requireNamespaces();
    String shell = "ip link set lo up; ip address delete 127.0.0.1/8 dev lo;";
    assumeTrue(new File("/proc/net/if_inet6").exists(), "no IPv6");
    assertThat(runApart(shell, PERF)).as(err()).isZero();
    assertThat(Files.readString(folder.resolve("out"))).contains("Out of bounds values : 0 OK");
  }
}
