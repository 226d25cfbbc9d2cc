// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.awaitility.Awaitility.await;

import io.fluxccl.Aborted;
import io.fluxccl.bootstrap.RankEnvironment;
import io.fluxccl.testing.Rounds;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

@Timeout(180)
class RankLauncherTest {
  private static final Duration GRACE = Duration.ofMillis(300);

  @TempDir private Path folder;

  private final Queue<String> lines = new ConcurrentLinkedQueue<>();
  private final Queue<String> notices = new ConcurrentLinkedQueue<>();
  private final LineForwarder.Sink sink = new Recorder();

  private class Recorder implements LineForwarder.Sink {
    @Override
    public void line(int rank, boolean error, byte[] line, End end) {
      lines.add(rank + (error ? "!" : ":") + new String(line, StandardCharsets.UTF_8));
    }

    @Override
    public void notice(String line) {
      notices.add(line);
    }
  }

  private RankLauncher start(int nRanks, int restarts, String script) {
    List<String> command = List.of("sh", "-c", "cd " + folder + "; " + script);
    return RankLauncher.start(command, nRanks, restarts, GRACE, sink);
  }

  /** Runs ranks to their end, and returns the code. Scripts run in the test's folder. */
  private int run(int nRanks, int restarts, String script) throws InterruptedException {
    try (RankLauncher ranks = start(nRanks, restarts, script)) {
      return ranks.await(GRACE);
    }
  }

  private int run(int nRanks, String script) throws InterruptedException {
    return run(nRanks, 0, script);
  }

  private void awaitLines(int count) {
    await().atMost(Duration.ofSeconds(60)).until(() -> lines.size() == count);
  }

  /** Begins a script: starts what heeds no SIGTERM, in a session of its own, and says its pid. */
  private static final String STUBBORN =
      "setsid sh -c 'trap \"\" TERM; echo $$ > $FLUXCCL_RANK; exec sleep 300' > /dev/null 2>&1 &"
          + " while [ ! -s $FLUXCCL_RANK ]; do sleep 0.05; done; cat $FLUXCCL_RANK; ";

  /** Ends rank 1 with an error until it has been started this many times. */
  private static String failing(int times) {
    return "[ $FLUXCCL_RANK = 0 ] && { while [ ! -e up ]; do sleep 0.05; done; exit 0; };"
        + " echo x >> count; [ $(wc -l < count) -gt "
        + times
        + " ] || exit 3; echo up as $FLUXCCL_RANK; touch up";
  }

  @Test
  void shouldStartARankThatFailsAgain() throws InterruptedException {
    assertThat(run(2, 2, failing(2))).isZero();
    assertThat(lines).containsExactly("1:up as 1");
    assertThat(notices)
        .containsExactly(
            "rank 1 ended with code 3 and is started again; 1 restarts are left",
            "rank 1 ended with code 3 and is started again; 0 restarts are left");
  }

  @Test
  void shouldNotStartARankAgainWhenAnotherIsDone() throws InterruptedException {
    String script = "[ $FLUXCCL_RANK = 0 ] && exit 0; sleep 3; exit 3";
    assertThat(run(2, RankLauncher.UNLIMITED, script)).isEqualTo(3);
    assertThat(notices).singleElement().asString().startsWith("rank 1 ended with code 3");
  }

  @Test
  void shouldEndTheJobWhenARankFailsTooOften() throws InterruptedException {
    assertThat(run(2, 1, failing(9))).isEqualTo(3);
    assertThat(notices).hasSize(2).last().asString().startsWith("rank 1 ended with code 3");
  }

  @Test
  void shouldSetTheRankVariablesOfEachProcessAndOneJobForAll() throws InterruptedException {
    String script =
        "echo $FLUXCCL_RANK/$FLUXCCL_NRANKS/$FLUXCCL_LOCAL_RANK;"
            + " echo $FLUXCCL_ADDR $FLUXCCL_SECRET $FLUXCCL_PARENT_PID >&2";

    assertThat(run(3, script)).isZero();
    assertThat(lines).contains("0:0/3/0", "1:1/3/1", "2:2/3/2");
    List<String> job =
        lines.stream().filter(l -> l.charAt(1) == '!').map(l -> l.substring(2)).toList();
    assertThat(job).hasSize(3);
    assertThat(job.stream().distinct()).hasSize(1);
    assertThat(job.get(0))
        .matches("127\\.0\\.0\\.1:\\d+ [A-Za-z0-9+/]{43}= " + ProcessHandle.current().pid());
  }

  @Test
  void shouldLeaveNoVariableOfAnotherJob() {
    Map<String, String> environment =
        new HashMap<>(
            Map.of(
                "FLUXCCL_UNIQUE_ID", "another job's",
                "FLUXCCL_SECRET_FILE", "/another/job's",
                "FLUXCCL_LOCAL_SIZE", "1",
                "FLUXCCL_LOG", "debug"));

    new RankVariables(3, "127.0.0.1:29500", "0123456789abcdef").addTo(environment, 2);

    assertThat(environment)
        .doesNotContainKeys("FLUXCCL_UNIQUE_ID", "FLUXCCL_SECRET_FILE")
        .containsEntry("FLUXCCL_LOCAL_SIZE", "3")
        .containsEntry("FLUXCCL_LOG", "debug");
    assertThat(RankEnvironment.from(environment).localRank()).hasValue(2);
  }

  @Test
  void shouldPassALongLineOnInPieces() throws InterruptedException {
    assertThat(run(1, "head -c 200000 /dev/zero | tr '\\0' x")).isZero();
    assertThat(lines).hasSize(4);
    assertThat(lines.stream().mapToInt(line -> line.length() - 2).sum()).isEqualTo(200_000);
  }

  @Test
  void shouldReportTheFirstRankThatEndedAndItsSignal() throws InterruptedException {
    assertThat(run(2, "[ $FLUXCCL_RANK = 1 ] && kill -9 $$; sleep 300")).isEqualTo(137);
    assertThat(notices)
        .containsExactly("rank 1 ended with code 137 (killed by signal 9); the others have 0.3 s");
  }

  @Test
  void shouldReportTheEndOfASingleRankOnlyIfItWasKilled() throws InterruptedException {
    assertThat(run(1, "exit 3")).isEqualTo(3);
    assertThat(notices).isEmpty();
    assertThat(run(1, "kill -15 $$")).isEqualTo(143);
    assertThat(notices).containsExactly("rank 0 ended with code 143 (killed by signal 15)");
  }

  @Test
  void shouldLetTheOthersEndByThemselvesWithinTheGracePeriod() throws InterruptedException {
    String script = "[ $FLUXCCL_RANK = 1 ] && exit 7; sleep 0.3; echo tidied up";

    try (RankLauncher ranks = start(2, 0, script)) {
      assertThat(ranks.await(Duration.ofSeconds(20))).isEqualTo(7);
    }

    assertThat(lines).containsExactly("0:tidied up");
  }

  @Test
  void shouldKillTheOthersAndTheirChildrenAfterTheGracePeriod() throws InterruptedException {
    // Rank 1 fails after rank 0 has printed its process ids.
    String script =
        "if [ $FLUXCCL_RANK = 1 ]; then while [ ! -e said ]; do sleep 0.05; done; exit 7; fi;"
            + " trap '' TERM; sleep 300 & echo $!; echo $$; : > said; wait; sleep 300";
    assertThat(run(2, script)).isEqualTo(7);
    assertThat(lines).hasSize(2);
    assertNoneRuns(pids());
  }

  @ParameterizedTest
  @ValueSource(ints = {0, 7})
  void shouldEndProcessesThatAnExitedRankStarted(int code) throws InterruptedException {
    String script =
        STUBBORN
            + "sleep 300 > out 2>&1 & echo $!; : > printed$FLUXCCL_RANK;"
            + " until [ -e printed0 ] && [ -e printed1 ]; do sleep 0.05; done; exit ";
    assertThat(run(2, script + code)).isEqualTo(code);
    assertThat(pids()).hasSize(4);
    assertNoneRuns(pids());
  }

  @Test
  void shouldEndProcessesOfAnExitedRankIfClosed() {
    String script = STUBBORN + "echo $$; [ $FLUXCCL_RANK = 1 ] && exit 0; exec sleep 300";
    RankLauncher ranks = start(2, 0, script);
    awaitLines(4);
    List<Long> ofRankOne =
        lines.stream().filter(l -> l.startsWith("1:")).map(RankLauncherTest::pid).toList();
    await().atMost(Duration.ofSeconds(60)).until(() -> !runs(ofRankOne.get(1)));
    assertThat(runs(ofRankOne.get(0))).isTrue();

    ranks.close();

    assertNoneRuns(pids());
  }

  @Test
  void shouldWaitForProcessesOfExitedRanksDuringTheGracePeriod() throws InterruptedException {
    String script =
        "(while [ -e /proc/$$ ]; do sleep 0.05; done; sleep 0.3; echo done > $FLUXCCL_RANK) & exit"
            + " 0";
    try (RankLauncher ranks = start(2, 0, script)) {
      assertThat(ranks.await(Duration.ofSeconds(60))).isZero();
    }
    assertThat(folder.resolve("0")).hasContent("done");
    assertThat(folder.resolve("1")).hasContent("done");
  }

  @Test
  void shouldNotWaitForOutputThatALeftOverProcessHolds() throws InterruptedException {
    // Without the job's variables, the launcher cannot recognize the process.
    assertThat(run(1, "env -i sleep 30 >&1 & echo $!; exit 0")).isZero();
    await().until(() -> !lines.isEmpty());
    String line = lines.remove();
    ProcessHandle.of(pid(line)).ifPresent(ProcessHandle::destroyForcibly);
  }

  @Test
  void shouldKeepEveryLineInOrderIfItsReaderIsSlow() throws InterruptedException {
    LineForwarder.Sink slow =
        new Recorder() {
          @Override
          public void line(int rank, boolean error, byte[] line, End end) {
            LockSupport.parkNanos(Duration.ofMillis(20).toNanos());
            super.line(rank, error, line, end);
          }
        };
    // Together they take longer than a pipe without bytes is waited for.
    int count = Rounds.of(120, 200);
    List<String> command = List.of("sh", "-c", "seq 1 " + count + "; printf last");
    try (RankLauncher ranks = RankLauncher.start(command, 2, 0, GRACE, slow)) {
      assertThat(ranks.await(GRACE)).isZero();
    }
    for (String rank : List.of("0:", "1:")) {
      assertThat(lines.stream().filter(line -> line.startsWith(rank)))
          .containsExactlyElementsOf(
              IntStream.rangeClosed(1, count + 1)
                  .mapToObj(i -> rank + (i > count ? "last" : i))
                  .toList());
    }
  }

  @Test
  void shouldReportTheCommandWhenItCannotBeStarted() {
    assertThatThrownBy(() -> RankLauncher.start(List.of("/no/such/command"), 2, 0, GRACE, sink))
        .isInstanceOf(Aborted.class)
        .hasMessageContaining("/no/such/command");
  }

  /** Returns the process ids that ranks printed. Shells report killed processes on stderr. */
  private List<Long> pids() {
    return lines.stream().filter(l -> l.charAt(1) == ':').map(RankLauncherTest::pid).toList();
  }

  private static long pid(String line) {
    return Long.parseLong(line.substring(2));
  }

  private static void assertNoneRuns(List<Long> pids) {
    assertThat(pids).isNotEmpty();
    await()
        .atMost(Duration.ofSeconds(60))
        .untilAsserted(() -> assertThat(pids).noneMatch(RankLauncherTest::runs));
  }

  /** A zombie, which only waits for its parent to look, runs no more. */
  static boolean runs(long pid) {
    try {
      String stat = Files.readString(Path.of("/proc/" + pid + "/stat"));
      return stat.charAt(stat.lastIndexOf(')') + 2) != 'Z';
    } catch (IOException e) {
      return false;
    }
  }

  @Test
  void shouldLeaveRanksTheTimeToEndThatWasAskedFor() {
    String saving =
        "trap 'sleep 2.5; echo saved; exit 0' TERM; echo up; while :; do sleep 0.05; done";
    try (RankLauncher ranks = start(2, 0, saving)) {
      await().until(() -> lines.contains("0:up") && lines.contains("1:up"));
      ranks.terminate(Duration.ofSeconds(30));
      await().until(() -> lines.contains("0:saved") && lines.contains("1:saved"));
    }
  }
}
