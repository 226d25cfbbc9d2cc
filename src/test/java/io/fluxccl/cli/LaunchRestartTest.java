// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.testkit.ProcessRank;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** {@code fluxccl launch --restart}, with ranks that are killed. */
@Tag("multiprocess")
@Timeout(120)
class LaunchRestartTest {
  private static final int RANKS = 3;
  private static final String SUM = "sum 3";
  private static final String FAILURE = "REMOTE_FAILURE of rank 1: ";
  private static final String PID_OF_RANK_1 = "[1] pid ";

  @TempDir private Path folder;

  /** The output of the launcher; lines of ranks have a tag. */
  private Cli ended;

  /** Starts ranks, awaits an all-reduce of each, kills rank 1 and awaits the launcher's end. */
  private void launchAndKillRank1(int restarts, String kind) throws IOException {
    Path again = folder.resolve("again");
    try (ProcessRank launcher =
        Cli.process(Main.class, "launch", "-n", "" + RANKS, "--tag-output")
            .arguments("--restart", "" + restarts, "--")
            .arguments(
                PerfCommand.javaCommand(RestartedRank.class.getName()).toArray(String[]::new))
            .arguments(kind, again.toString())
            .variables(Map.of("FLUXCCL_DEVICE", "host"))
            .startRank(0)) {
      for (int rank = 0; rank < RANKS; rank++) {
        String tag = "[" + rank + "]";
        launcher.await(
            all -> all.lines().stream().anyMatch(line -> has(line, tag, SUM)), tag + SUM);
      }
      Files.createFile(again);
      String pid = launcher.last(PID_OF_RANK_1).substring(PID_OF_RANK_1.length());
      ProcessHandle.of(Long.parseLong(pid)).orElseThrow().destroyForcibly();
      ended = Cli.ended(launcher);
    }
  }

  private static boolean has(String line, String tag, String text) {
    return line.startsWith(tag) && line.contains(text);
  }

  private boolean has(int rank, String text) {
    return ended.out().lines().anyMatch(line -> has(line, "[" + rank + "]", text));
  }

  /** Returns the lines of the launcher. */
  private List<String> notices() {
    return ended.err().lines().filter(line -> !line.startsWith("[")).toList();
  }

  @Test
  void shouldHealAJobWithGenerations() throws Exception {
    launchAndKillRank1(1, "heals");
    assertThat(ended.code()).as(ended.out()).isZero();
    for (int rank = 0; rank < RANKS; rank++) {
      assertThat(has(rank, "generation 2 " + SUM)).as(ended.out()).isTrue();
    }
    assertThat(has(0, FAILURE) && has(2, FAILURE)).as(ended.out()).isTrue();
    assertThat(notices())
        .containsExactly("rank 1 ended with code 137 and is started again; 0 restarts are left");
  }

  @Test
  @Tag("long")
  void shouldEndAJobWithoutGenerationsWithItsErrorWhenTooFewRestartsAreLeft() throws Exception {
    launchAndKillRank1(1, "once");
    assertThat(ended.code()).as(ended.out()).isEqualTo(ExitCode.FAILURE);
    assertThat(has(0, FAILURE) && has(2, FAILURE)).as(ended.out()).isTrue();
    assertThat(notices())
        .hasSize(2)
        .first()
        .isEqualTo("rank 1 ended with code 137 and is started again; 0 restarts are left");
    assertThat(notices().get(1)).matches("rank [02] ended with code 1; the others have 5 s");
  }

  @Test
  @Tag("long")
  void shouldBeginAJobWithoutGenerationsAnewWhenEachOfItsRanksIsStartedAgain() throws Exception {
    launchAndKillRank1(RANKS, "once");
    assertThat(ended.code()).as(ended.out()).isZero();
    assertThat(has(0, FAILURE) && has(2, FAILURE)).as(ended.out()).isTrue();
    assertThat(notices())
        .map(line -> line.replaceFirst(" and is started again; .*", ""))
        .containsExactlyInAnyOrder(
            "rank 1 ended with code 137", "rank 0 ended with code 1", "rank 2 ended with code 1");
  }
}
