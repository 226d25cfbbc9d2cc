// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import static org.assertj.core.api.Assertions.assertThat;
import static org.awaitility.Awaitility.await;

import io.fluxccl.testing.Rounds;
import io.fluxccl.testkit.ProcessRank;
import io.fluxccl.testkit.ProcessRanks;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.regex.Pattern;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** The command line as processes of its own, with ranks as processes of theirs. */
@Tag("multiprocess")
@Timeout(300)
class MultiProcessTest {
  private static final String[] TWO_RANKS =
      "perf all-reduce --ranks 2 --counts 8 -n 1 --jit-warmup 0".split(" ");

  /** A rank's line that names its process. */
  private static final Pattern PID = Pattern.compile("pid (\\d+)");

  @TempDir private Path folder;

  /** An argument of no other process, by which this test finds those that print nothing. */
  private final String seconds = "300." + System.nanoTime();

  private ProcessRank process;

  @AfterEach
  void end() {
    sleeping().forEach(ProcessHandle::destroyForcibly);
    process.close();
  }

  private ProcessRanks.Builder builder(String pretend, String... args) {
    return Cli.process(FakePerfMain.class, args).variables(Map.of(FakePerfMain.VARIABLE, pretend));
  }

  private Cli run(ProcessRanks.Builder builder) {
    process = builder.startRank(0);
    return Cli.ended(process);
  }

  private Cli perf(String pretend, String... more) {
    return run(builder(pretend, TWO_RANKS).arguments(more));
  }

  private static List<Long> rankPids(List<String> lines) {
    return lines.stream()
        .flatMap(line -> PID.matcher(line).results())
        .map(pid -> Long.parseLong(pid.group(1)))
        .toList();
  }

  @Test
  void shouldPrintOneTableAndWriteOneFileWhenEachRankIsAProcess() throws Exception {
    Path json = folder.resolve("rows.json");

    Cli perf = perf("", "--json", json.toString());

    assertThat(perf.code()).as(perf.err()).isZero();
    assertThat(perf.out()).containsOnlyOnce("Out of bounds values : 0 OK");
    assertThat(perf.err()).contains("[0] pid ").contains("[1] pid ");
    assertThat(CollectiveCommandTest.parse(json)).hasSize(1);
  }

  @Test
  @Tag("long")
  void shouldPassOnTheProgressOfRankZeroOnly() {
    Cli perf = perf("", "--progress");

    assertThat(perf.code()).as(perf.err()).isZero();
    assertThat(perf.err().lines().filter(line -> line.contains(Progress.MARK)))
        .satisfiesExactly(
            first -> assertThat(first).isEqualTo("progress: warming up"),
            second ->
                assertThat(second)
                    .matches("progress: 1 of 1: all-reduce, 32 bytes; \\d+ s so far"));
  }

  @Test
  @Tag("long")
  void shouldFailWhenARankOfAnotherProcessHasWrongElements() {
    Cli perf = perf("0:CORRUPTS");

    assertThat(perf.code()).isEqualTo(ExitCode.FAILURE);
    assertThat(perf.out()).contains("FAILED");
  }

  @Test
  void shouldExitWithTheCodeOfADeadRankAndEndTheOthers() {
    Cli perf = perf("1:EXITS");

    assertThat(perf.code()).isEqualTo(7);
    assertNoneRuns(rankPids(process.errors()));
  }

  @ParameterizedTest
  @CsvSource({"TERM, 143", "KILL, 137"})
  @Tag("long")
  void shouldEndItsRanksWhenTheLauncherIsEndedByASignal(String signal, int code) {
    process = builder("0:HANGS", TWO_RANKS).arguments("--timeout", "600").startRank(0);
    process.await(launcher -> rankPids(launcher.errors()).size() == 2, "both ranks");
    process.signal(signal);

    assertThat(process.end()).isEqualTo(code);
    assertNoneRuns(rankPids(process.errors()));
  }

  @Test
  void shouldEndAtOnceWhenTheLauncherIsGoneAlready() throws Exception {
    Process gone = new ProcessBuilder("true").start();
    gone.waitFor();

    Cli version =
        run(
            builder("", "--version")
                .variables(Map.of(RankVariables.PARENT, Long.toString(gone.pid()))));

    assertThat(version).isEqualTo(new Cli(143, "", ""));
  }

  @Test
  void shouldWatchNoParentIfTheParentVariableIsEmpty() {
    Cli version = run(builder("", "--version").variables(Map.of(RankVariables.PARENT, "")));

    assertThat(version.code()).as(version.err()).isZero();
  }

  @Test
  void shouldLaunchAnyCommandAndTagItsOutput() {
    String[] args = {
      "launch", "-n", "2", "--tag-output", "--", "sh", "-c", "echo -n @$FLUXCCL_RANK"
    };
    Cli launch = run(builder("", args));

    assertThat(launch.code()).isZero();
    assertThat(launch.out().lines()).containsExactlyInAnyOrder("[0] @0", "[1] @1");
  }

  @Test
  void shouldEndAllRanksIfTheLauncherIsTerminatedWhileItStartsThem() {
    String script = "[ $FLUXCCL_RANK = 0 ] && kill $FLUXCCL_PARENT_PID; exec sleep " + seconds;

    Cli launch =
        run(builder("", "launch", "-n", "" + Rounds.of(100, 400), "--", "sh", "-c", script));

    assertThat(launch.code()).isEqualTo(143);
    await().untilAsserted(() -> assertThat(sleeping()).isEmpty());
    assertThat(launch.err()).isEmpty();
  }

  @Test
  void shouldEndAllCommandsIfTheLauncherIsKilled() {
    String script = "(sleep " + seconds + " &); exec sleep " + seconds;
    process = builder("", "launch", "-n", "2", "--", "sh", "-c", script).startRank(0);
    await().until(() -> sleeping().size() == 4);
    process.signal("KILL");
    await().untilAsserted(() -> assertThat(sleeping()).isEmpty());
  }

  private List<ProcessHandle> sleeping() {
    return ProcessHandle.allProcesses()
        .filter(this::isSleep)
        .filter(handle -> RankLauncherTest.runs(handle.pid()))
        .toList();
  }

  private boolean isSleep(ProcessHandle handle) {
    String command = handle.info().command().orElse("");
    return !command.endsWith("java")
        && handle.info().arguments().filter(args -> List.of(args).contains(seconds)).isPresent();
  }

  private static void assertNoneRuns(List<Long> pids) {
    await().untilAsserted(() -> assertThat(pids).noneMatch(RankLauncherTest::runs));
  }
}
