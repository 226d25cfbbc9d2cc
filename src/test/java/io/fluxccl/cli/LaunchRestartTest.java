// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import static org.assertj.core.api.Assertions.assertThat;
import static org.awaitility.Awaitility.await;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.AfterEach;
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
  private static final Pattern PID_OF_RANK_1 = Pattern.compile("\\[1\\] pid (\\d+)");

  @TempDir private Path folder;

  private Process launcher;

  @AfterEach
  void end() {
    if (launcher != null) {
      launcher.descendants().forEach(ProcessHandle::destroyForcibly);
      launcher.destroyForcibly();
    }
  }

  /** Starts ranks, awaits an all-reduce of each, and kills rank 1. */
  private void launchAndKillRank1(int restarts, String kind) throws IOException {
    List<String> command = PerfCommand.javaCommand(Main.class.getName());
    command.addAll(List.of("launch", "-n", "" + RANKS, "--tag-output"));
    command.addAll(List.of("--restart", "" + restarts, "--"));
    command.addAll(PerfCommand.javaCommand(RestartedRank.class.getName()));
    command.addAll(List.of(kind, again().toString()));
    ProcessBuilder builder = new ProcessBuilder(command);
    builder.environment().put("FLUXCCL_DEVICE", "host");
    builder.redirectOutput(folder.resolve("out").toFile());
    builder.redirectError(folder.resolve("err").toFile());
    launcher = builder.start();
    await().atMost(Duration.ofSeconds(60)).until(() -> has(0, SUM) && has(1, SUM) && has(2, SUM));
    Files.createFile(again());
    Matcher pid = PID_OF_RANK_1.matcher(out());
    assertThat(pid.find()).isTrue();
    ProcessHandle.of(Long.parseLong(pid.group(1))).orElseThrow().destroyForcibly();
  }

  private Path again() {
    return folder.resolve("again");
  }

  private boolean has(int rank, String text) throws IOException {
    return out().lines().anyMatch(line -> line.startsWith("[" + rank + "]") && line.contains(text));
  }

  private String out() throws IOException {
    return Files.readString(folder.resolve("out"));
  }

  /** Returns the lines of the launcher; lines of ranks have a tag. */
  private List<String> said() throws IOException {
    List<String> lines = Files.readAllLines(folder.resolve("err"));
    return lines.stream().filter(line -> !line.startsWith("[")).toList();
  }

  private int code() throws InterruptedException {
    assertThat(launcher.waitFor(60, TimeUnit.SECONDS)).isTrue();
    return launcher.exitValue();
  }

  @Test
  void shouldHealAJobWithGenerations() throws Exception {
    launchAndKillRank1(1, "heals");
    assertThat(code()).as(out()).isZero();
    for (int rank = 0; rank < RANKS; rank++) {
      assertThat(has(rank, "generation 2 " + SUM)).as(out()).isTrue();
    }
    assertThat(has(0, FAILURE) && has(2, FAILURE)).as(out()).isTrue();
    assertThat(said())
        .containsExactly("rank 1 ended with code 137 and is started again; 0 restarts are left");
  }

  @Test
  @Tag("long")
  void shouldEndAJobWithoutGenerationsWithItsErrorWhenTooFewRestartsAreLeft() throws Exception {
    launchAndKillRank1(1, "once");
    assertThat(code()).as(out()).isEqualTo(ExitCode.FAILURE);
    assertThat(has(0, FAILURE) && has(2, FAILURE)).as(out()).isTrue();
    assertThat(said())
        .hasSize(2)
        .first()
        .isEqualTo("rank 1 ended with code 137 and is started again; 0 restarts are left");
    assertThat(said().get(1)).matches("rank [02] ended with code 1; the others have 5 s");
  }

  @Test
  @Tag("long")
  void shouldBeginAJobWithoutGenerationsAnewWhenEachOfItsRanksIsStartedAgain() throws Exception {
    launchAndKillRank1(RANKS, "once");
    assertThat(code()).as(out()).isZero();
    assertThat(has(0, FAILURE) && has(2, FAILURE)).as(out()).isTrue();
    List<String> codes = new ArrayList<>();
    for (String line : said()) {
      codes.add(line.replaceFirst(" and is started again; .*", ""));
    }
    assertThat(codes)
        .containsExactlyInAnyOrder(
            "rank 1 ended with code 137", "rank 0 ended with code 1", "rank 2 ended with code 1");
  }
}
