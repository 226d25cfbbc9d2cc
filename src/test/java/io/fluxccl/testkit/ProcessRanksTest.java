// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.testkit;

import static io.fluxccl.testing.FailureAssertions.assertRefused;
import static io.fluxccl.testing.FailureAssertions.assertThrows;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.FluxCclException;
import io.fluxccl.ReduceOp;
import io.fluxccl.RemoteFailure;
import io.fluxccl.Timeout;
import io.fluxccl.device.IntView;
import io.fluxccl.group.RankGroup;
import io.fluxccl.testing.TestJvms;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.slf4j.LoggerFactory;

@Tag("multiprocess")
class ProcessRanksTest {
  private static final String[] QUICK = {
    "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dfluxccl.first=1"
  };

  /** Sums the numbers that the ranks read, and prints a failure with its rank. */
  static final class Adder {
    public static void main(String[] arguments) throws IOException {
      BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
      try (RankGroup group = RankGroup.fromEnvironment().join();
          IntView x = group.device().allocateInts(1)) {
        System.out.println(arguments[0] + " " + group.rank());
        for (String line = in.readLine(); line != null; line = in.readLine()) {
          x.put(0, Integer.parseInt(line));
          group.collectives().allReduce(x, ReduceOp.SUM).block();
          System.out.println("sum " + x.get(0));
        }
      } catch (FluxCclException e) {
        System.out.println("failed " + e.code() + " rank=" + e.rank());
        System.exit(3);
      }
    }
  }

  private static ProcessRanks.Builder builder(int nRanks, Class<?> main) {
    return ProcessRanks.builder(nRanks, main).jvmOptions(QUICK).arguments("ready");
  }

  private static ProcessRanks start() {
    return builder(2, Adder.class).limit(Duration.ofSeconds(60)).start();
  }

  /** Starts one of two ranks, which therefore prints nothing within its limit. */
  private static ProcessRank startAlone() {
    return builder(2, Adder.class).limit(Duration.ofMillis(200)).startRank(1);
  }

  /** Returns the states of a process's threads, as {@code /proc} names them. */
  private static List<String> states(ProcessRank rank) throws IOException {
    List<String> states = new ArrayList<>();
    try (DirectoryStream<Path> threads =
        Files.newDirectoryStream(Path.of("/proc/" + rank.pid() + "/task"))) {
      for (Path thread : threads) {
        String stat = Files.readString(thread.resolve("stat"));
        states.add(stat.substring(stat.lastIndexOf(')') + 2, stat.lastIndexOf(')') + 3));
      }
    }
    return states;
  }

  @Test
  void shouldSendLinesToRanksAndReturnTheirExitCodes() throws IOException {
    try (ProcessRanks ranks = start()) {
      ranks.all().forEach(rank -> rank.awaitLine("ready " + rank.rank()));
      ranks.get(0).sendLine("30");
      ranks.get(1).stop();
      assertThat(states(ranks.get(1))).isNotEmpty().containsOnly("T");
      ranks.get(1).sendLine("12");
      assertThat(ranks.get(0).last("sum")).isNull();
      ranks.get(1).resume();
      ranks.all().forEach(rank -> assertThat(rank.awaitLine("sum")).isEqualTo("sum 42"));
      assertThat(ranks.all().stream().map(ProcessRank::end)).containsOnly(0);
      String[] message = {"rank 0 ended with code 0", "'nothing'", "ready 0\nsum 42"};
      assertThrows(RemoteFailure.class, () -> ranks.get(0).awaitLine("nothing"), message);
      assertThrows(RemoteFailure.class, () -> ranks.get(0).stop());
    }
  }

  @Test
  @SuppressWarnings("deprecation")
  void shouldAcceptTheFormerNamesOfSendLineAndResume() {
    try (ProcessRank rank = ProcessRanks.builder(1, List.of("cat")).startRank(0)) {
      rank.stop();
      rank.tell("12");
      rank.goOn();
      assertThat(rank.awaitLine("12")).isEqualTo("12");
    }
  }

  @Test
  void shouldKillReplaceAndEndRanks() {
    ProcessRanks ranks = start();
    try (ranks) {
      ranks.all().forEach(rank -> rank.awaitLine("ready"));
      ranks.get(0).sendLine("1");
      ranks.get(1).kill();
      assertThat(ranks.get(0).awaitLine("failed")).isEqualTo("failed REMOTE_FAILURE rank=1");
      assertThat(ranks.get(0).end()).isEqualTo(3);
      ProcessRank dead = ranks.get(1);
      assertThat(ranks.replace(1)).isNotSameAs(dead);
      assertThat(ranks.get(1).isAlive()).isTrue();
      ranks.kill(List.of(0, 1));
      assertThat(ranks.all()).noneMatch(ProcessRank::isAlive);
    }
    assertThat(ranks.all()).noneMatch(ProcessRank::isAlive);
  }

  @Test
  void shouldFailNamingTheAwaitedLineIfARankIsLate() {
    try (ProcessRank alone = builder(1, Adder.class).startRank(0)) {
      alone.awaitLine("ready");
    }
    try (ProcessRank late = startAlone()) {
      String[] message = {"rank 1", "'ready'", "within 200 ms"};
      assertThat(assertThrows(Timeout.class, () -> late.awaitLine("ready"), message).rank())
          .isEqualTo(1);
      message[1] = "another line";
      assertThrows(Timeout.class, late::readLine, message);
    }
  }

  /** Logs a warning, and prints a line to each output. */
  static final class Speaker {
    public static void main(String[] arguments) {
      LoggerFactory.getLogger(Speaker.class).warn("a warning, on purpose");
      System.err.println("an error");
      System.out.println("of host " + System.getenv("FLUXCCL_HOSTID"));
      System.out.println("the end");
    }
  }

  @Test
  void shouldReadLineByLineWithoutErrorsThatGoElsewhere() {
    ProcessRanks.Builder builder =
        TestJvms.of(2, Speaker.class)
            .variablesByRank(rank -> Map.of("FLUXCCL_HOSTID", "h" + rank))
            .jvmOptions("-XX:NewSize=1g"); // more than the heap: the JVM warns
    try (ProcessRanks ranks = builder.start()) {
      for (ProcessRank rank : ranks.all()) {
        assertThat(rank.readLine()).isEqualTo("of host h" + rank.rank());
        assertThat(rank.readLine()).isEqualTo("the end");
        assertThat(rank.readLine()).isNull();
        assertThat(rank.errors()).isEmpty();
      }
    }
  }

  @Test
  void shouldRunAnyProgramWithAPrefixAndTheVariablesThatAreLeft() {
    ProcessRanks.Builder builder =
        ProcessRanks.builder(2, List.of("sh", "-c", "echo $0 $FLUXCCL_RANK of $JOB; echo no >&2"))
            .removeVariables(name -> name.startsWith("FLUXCCL_"))
            .variables(Map.of("JOB", "job"))
            .prefixByRank(rank -> List.of("env", "FLUXCCL_RANK=" + rank))
            .arguments("hello")
            .keepErrors();
    try (ProcessRanks ranks = builder.start()) {
      for (ProcessRank rank : ranks.all()) {
        assertThat(rank.end()).isZero();
        assertThat(rank.lines()).containsExactly("hello " + rank.rank() + " of job");
        assertThat(rank.errors()).containsExactly("no");
        String[] message = {"rank " + rank.rank() + " ended with code 0", "standard error:\nno"};
        assertThrows(RemoteFailure.class, () -> rank.awaitLine("nothing"), message);
      }
    }
  }

  @Test
  void shouldRefuseABuilderThatCannotStartOrJoinRanks() {
    assertRefused(() -> ProcessRanks.builder(1, List.of()), "give a program");
    ProcessRanks.Builder cat = ProcessRanks.builder(1, List.of("cat"));
    assertRefused(() -> cat.jvmOptions("-Xmx1g"), "cat is no JVM");
    cat.removeVariables(TestJvms::isOfJob);
    assertRefused(() -> cat.joinOptions(0), "variables are removed");
  }

  @Test
  void shouldEndAWaitAtOnceIfARankReportsAFailure() {
    List<String> script = List.of("sh", "-c", "echo a failure at 3; kill -STOP $$; sleep 60");
    try (ProcessRank rank = ProcessRanks.builder(1, script).failure("a failure").startRank(0)) {
      assertThat(rank.awaitLineWith("at 3")).isEqualTo("a failure at 3");
      assertThat(rank.count("fail")).isEqualTo(1);
      assertThatThrownBy(() -> rank.awaitLineWith("at 4"))
          .isInstanceOf(RemoteFailure.class)
          .hasMessageContainingAll("rank 0 reported a failure", "'at 4'", "a failure at 3");
      assertRefused(() -> rank.signal("NONE"), "rank 0", "SIGNONE", "no such signal");
      rank.signal("KILL");
      assertThat(rank.end()).isEqualTo(137);
    }
  }

  @Test
  void shouldLetARankOfThisJvmJoinTheJobOfTheOthers() {
    ProcessRanks.Builder job = TestJvms.of(2, Adder.class, "ready");
    try (ProcessRank other = job.startRank(1);
        RankGroup group = RankGroup.join(job.joinOptions(0)).join();
        IntView x = group.device().allocateInts(1)) {
      other.sendLine("12");
      x.put(0, 30);
      group.collectives().allReduce(x, ReduceOp.SUM).block();
      assertThat(x.get(0)).isEqualTo(42);
      assertThat(other.awaitLine("sum")).isEqualTo("sum 42");
    }
  }
}
