// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import static org.assertj.core.api.Assertions.assertThat;
import static org.awaitility.Awaitility.await;

import io.fluxccl.testing.Rounds;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** The command line as processes of its own, with ranks as processes of theirs. */
@Tag("multiprocess")
@Timeout(300)
class MultiProcessTest {
  private static final Pattern PID = Pattern.compile("pid (\\d+)");

  @TempDir private Path folder;

  private Process process;

  @AfterEach
  void end() {
    if (process != null) {
      process.descendants().forEach(ProcessHandle::destroyForcibly);
      process.destroyForcibly();
    }
  }

  private void start(String pretend, String... args) throws IOException {
    start(pretend, Map.of(), args);
  }

  private void start(String pretend, Map<String, String> more, String... args) throws IOException {
    List<String> command = PerfCommand.javaCommand(FakePerfMain.class.getName());
    command.addAll(List.of(args));
    ProcessBuilder builder = new ProcessBuilder(command);
    builder.environment().put(FakePerfMain.VARIABLE, pretend);
    builder.environment().putAll(more);
    builder.redirectOutput(folder.resolve("out").toFile());
    builder.redirectError(folder.resolve("err").toFile());
    process = builder.start();
  }

  private void startPerf(String pretend, String... more) throws IOException {
    List<String> args = new ArrayList<>(List.of("perf", "all-reduce", "--ranks", "2"));
    args.addAll(List.of("--counts", "8", "-n", "1", "--jit-warmup", "0"));
    args.addAll(List.of(more));
    start(pretend, args.toArray(String[]::new));
  }

  private int code() throws InterruptedException {
    assertThat(process.waitFor(200, TimeUnit.SECONDS)).isTrue();
    return process.exitValue();
  }

  private String out() throws IOException {
    return Files.readString(folder.resolve("out"));
  }

  private String err() throws IOException {
    return Files.readString(folder.resolve("err"));
  }

  private List<Long> rankPids() throws IOException {
    List<Long> pids = new ArrayList<>();
    Matcher matcher = PID.matcher(err());
    while (matcher.find()) {
      pids.add(Long.parseLong(matcher.group(1)));
    }
    return pids;
  }

  private List<Long> awaitRanks() {
    await().atMost(Duration.ofSeconds(60)).until(() -> rankPids().size() == 2);
    return awaitUnchecked();
  }

  private List<Long> awaitUnchecked() {
    try {
      return rankPids();
    } catch (IOException e) {
      throw new java.io.UncheckedIOException(e);
    }
  }

  @Test
  void shouldPrintOneTableAndWriteOneFileWhenEachRankIsAProcess() throws Exception {
    Path json = folder.resolve("rows.json");

    startPerf("-1:", "--json", json.toString());

    assertThat(code()).as(err()).isZero();
    assertThat(out().split("Out of bounds values : 0 OK", -1)).hasSize(2);
    assertThat(err()).contains("[0] pid ").contains("[1] pid ");
    assertThat(CollectiveCommandTest.parse(json)).hasSize(1);
  }

  @Test
  @Tag("long")
  void shouldPassOnTheProgressOfRankZeroOnly() throws Exception {
    startPerf("-1:", "--progress");

    assertThat(code()).as(err()).isZero();
    assertThat(err().lines().filter(line -> line.contains(Progress.MARK)))
        .satisfiesExactly(
            first -> assertThat(first).isEqualTo("progress: warming up"),
            second ->
                assertThat(second)
                    .matches("progress: 1 of 1: all-reduce, 32 bytes; \\d+ s so far"));
  }

  @Test
  @Tag("long")
  void shouldFailWhenARankOfAnotherProcessHasWrongElements() throws Exception {
    startPerf("0:wrong");

    assertThat(code()).isEqualTo(ExitCode.FAILURE);
    assertThat(out()).contains("FAILED");
  }

  @Test
  void shouldExitWithTheCodeOfADeadRankAndEndTheOthers() throws Exception {
    startPerf("1:exit");

    assertThat(code()).isEqualTo(7);
    assertNoneRuns(rankPids());
  }

  @Test
  @Tag("long")
  void shouldEndItsRanksWhenTheLauncherIsTerminated() throws Exception {
    startPerf("0:hang");
    List<Long> pids = awaitRanks();

    process.destroy();

    assertThat(code()).isEqualTo(143);
    assertNoneRuns(pids);
  }

  @Test
  @Tag("long")
  void shouldEndItsRanksWhenTheLauncherIsKilled() throws Exception {
    startPerf("0:hang", "--timeout", "600");
    List<Long> pids = awaitRanks();

    process.destroyForcibly();

    assertNoneRuns(pids);
  }

  @Test
  void shouldEndAtOnceWhenTheLauncherIsGoneAlready() throws Exception {
    Process gone = new ProcessBuilder("true").start();
    gone.waitFor();

    start("-1:", Map.of(RankVariables.PARENT, Long.toString(gone.pid())), "--version");

    assertThat(code()).isEqualTo(143);
    assertThat(out() + err()).isEmpty();
  }

  @Test
  void shouldWatchNoParentIfTheParentVariableIsEmpty() throws Exception {
    start("-1:", Map.of(RankVariables.PARENT, ""), "--version");

    assertThat(code()).as(err()).isZero();
  }

  @Test
  void shouldLaunchAnyCommandAndTagItsOutput() throws Exception {
    start("-1:", "launch", "-n", "2", "--tag-output", "--", "sh", "-c", "echo -n @$FLUXCCL_RANK");

    assertThat(code()).isZero();
    assertThat(out().lines()).containsExactlyInAnyOrder("[0] @0", "[1] @1");
  }

  @Test
  void shouldEndAllRanksIfTheLauncherIsTerminatedWhileItStartsThem() throws Exception {
    // This unique argument identifies the processes, because they print nothing.
    String seconds = "300." + System.nanoTime();
    String script = "[ $FLUXCCL_RANK = 0 ] && kill $FLUXCCL_PARENT_PID; exec sleep " + seconds;

    start("-1:", "launch", "-n", "" + Rounds.of(100, 400), "--", "sh", "-c", script);

    assertThat(code()).isEqualTo(143);
    try {
      await()
          .atMost(Duration.ofSeconds(30))
          .untilAsserted(() -> assertThat(sleeping(seconds)).isEmpty());
    } finally {
      sleeping(seconds).forEach(ProcessHandle::destroyForcibly);
    }
    assertThat(err()).isEmpty();
  }

  @Test
  void shouldEndAllCommandsIfTheLauncherIsKilled() throws Exception {
    String seconds = "300." + System.nanoTime();
    start(
        "-1:",
        "launch",
        "-n",
        "2",
        "--",
        "sh",
        "-c",
        "(sleep " + seconds + " &); exec sleep " + seconds);
    try {
      await().atMost(Duration.ofSeconds(60)).until(() -> sleeping(seconds).size() == 4);
      process.destroyForcibly();
      await()
          .atMost(Duration.ofSeconds(30))
          .untilAsserted(() -> assertThat(sleeping(seconds)).isEmpty());
    } finally {
      sleeping(seconds).forEach(ProcessHandle::destroyForcibly);
    }
  }

  @Test
  @Tag("long")
  void shouldPassOnALongLineAsItIs() throws Exception {
    start("-1:", "launch", "-n", "1", "--", "sh", "-c", "head -c 200000 /dev/zero | tr '\\0' x");

    assertThat(code()).isZero();
    assertThat(out()).isEqualTo("x".repeat(200_000));
  }

  private static List<ProcessHandle> sleeping(String seconds) {
    return ProcessHandle.allProcesses()
        .filter(handle -> isSleep(handle, seconds))
        .filter(handle -> RankLauncherTest.runs(handle.pid()))
        .toList();
  }

  private static boolean isSleep(ProcessHandle handle, String seconds) {
    String command = handle.info().command().orElse("");
    return !command.endsWith("java")
        && handle.info().arguments().filter(args -> List.of(args).contains(seconds)).isPresent();
  }

  private static void assertNoneRuns(List<Long> pids) {
    await()
        .atMost(Duration.ofSeconds(60))
        .untilAsserted(() -> assertThat(pids).noneMatch(RankLauncherTest::runs));
  }
}
