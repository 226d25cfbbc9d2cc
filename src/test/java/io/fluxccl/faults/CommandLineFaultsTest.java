// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.faults;

import static org.assertj.core.api.Assertions.assertThat;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.fluxccl.cli.Main;
import io.fluxccl.testing.TestJvms;
import io.fluxccl.testkit.ProcessRank;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.parallel.Execution;
import org.junit.jupiter.api.parallel.ExecutionMode;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** The command line where the disk is full, or an address of the loopback is missing. */
@Tag("faults")
@Timeout(300)
@Execution(ExecutionMode.CONCURRENT)
class CommandLineFaultsTest {
  private static final String PERF =
      "perf all-reduce --ranks 2 --device host -b 1K -e 1K -n 1 -w 1 --jit-warmup 0";

  /** Starts the command line after lines of shell. */
  private static ProcessRank start(String shell, String words) {
    return TestJvms.withLog(1, Main.class, words.split(" "))
        .removeVariables(TestJvms::isOfJob)
        .prefix(List.of("sh", "-c", shell, "sh"))
        .jvmOptions("-Xmx256m")
        .startRank(0);
  }

  @ParameterizedTest
  @ValueSource(strings = {"info", "info --json", PERF, "launch -n 2 -- echo said", "--help"})
  void shouldFailWhenItsOutputFindsNoSpace(String words) {
    assumeTrue(Files.exists(Path.of("/dev/full")), "no /dev/full");
    try (ProcessRank process = start("exec \"$@\" 2>&1 > /dev/full", words)) {
      assertThat(process.end()).as(process.output()).isNotZero();
      assertThat(process.output()).contains("standard output can't be written");
    }
  }

  /** Starts it in a network namespace of its own, after a line of shell. */
  private static ProcessRank startApart(String shell, String words) {
    TwoHosts.require();
    return start("exec unshare -n sh -c '" + shell + " exec \"$@\"' sh \"$@\"", words);
  }

  @Test
  void shouldNameTheRemedyIfTheLoopbackInterfaceIsDown() {
    try (ProcessRank process = startApart("", "launch -n 2 -- true")) {
      assertThat(process.end()).isNotZero();
      assertThat(process.output()).contains("127.0.0.1").contains("ip link set lo up");
    }
  }

  @Test
  void shouldMeetAtTheOtherLoopbackWhereTheFirstIsMissing() {
    assumeTrue(Files.exists(Path.of("/proc/net/if_inet6")), "no IPv6");
    String shell = "ip link set lo up; ip address delete 127.0.0.1/8 dev lo;";
    try (ProcessRank process = startApart(shell, PERF)) {
      assertThat(process.end()).as(process.output()).isZero();
      assertThat(process.output()).contains("Out of bounds values : 0 OK");
    }
  }
}
