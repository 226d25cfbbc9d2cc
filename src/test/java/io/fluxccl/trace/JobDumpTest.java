// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.trace;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import io.fluxccl.RemoteFailure;
import io.fluxccl.TransportFailure;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

@Tag("jdk")
class JobDumpTest {
  private static final int TAG = 100;
  private static final long NOW = 50_000_000_000L;
  private static final long SECOND = 1_000_000_000L;

  private static CallRecord call(
      long first, long last, String kind, long enqueued, long ended, Outcome outcome) {
    long begun = ended == 0 ? 0 : enqueued;
    return new CallRecord(
        TAG, last, first, last, kind, "float", "pipe", 64, enqueued, begun, ended, 0, 0, outcome);
  }

  /** Returns a call that has waited for a second. */
  private static CallRecord waits(long first, long last, String kind) {
    return call(first, last, kind, NOW - SECOND, 0, Outcome.IN_FLIGHT);
  }

  private static CallRecord done(long number) {
    long from = NOW - 5 * SECOND + number * 1000;
    return call(number, number, "all-reduce", from, from + 500, Outcome.DONE);
  }

  private static GroupReport group(
      long id, List<Integer> ranks, long enqueued, long completed, CallRecord... calls) {
    return new GroupReport(
        id,
        id == 0 ? "" : "tp",
        ranks,
        "",
        -1,
        List.of(),
        List.of(new LaneReport(TAG, enqueued, completed, calls.length)),
        List.of(calls));
  }

  /** Returns the report of the group of all ranks. */
  private static GroupReport job(long enqueued, long completed, CallRecord... calls) {
    return group(0, List.of(), enqueued, completed, calls);
  }

  private static RankReport report(
      int rank, long now, Map<Integer, Long> silentNs, GroupReport... groups) {
    return new RankReport("chat", rank, 4, 1000 + rank, "host", now, silentNs, List.of(groups));
  }

  private static RankAnswer answer(int rank, GroupReport... groups) {
    RankReport report = report(rank, NOW, Map.of(), groups);
    return RankAnswer.of(rank, RankReport.decode(report.encode(true)), NOW, NOW);
  }

  private static RankAnswer waiting(int rank, long number) {
    return answer(
        rank, job(number, number - 1, done(number - 1), waits(number, number, "all-reduce")));
  }

  private static void assertVerdict(JobDump dump, int blamed, String verdict) {
    assertThat(dump.verdict()).isEqualTo(verdict);
    assertThat(dump.blamed()).containsExactly(blamed);
  }

  @Test
  void shouldAttributeACallToTheRankThatHasNotStartedIt() {
    RankAnswer behind = answer(2, job(1042, 1042, done(1042)));
    JobDump dump =
        JobDump.of(4, List.of(waiting(3, 1043), waiting(0, 1043), behind, waiting(1, 1043)));
    assertVerdict(
        dump,
        2,
        "rank 2 has not begun all-reduce 1043 of lane 0, in which ranks 0, 1 and 3 wait for 1.0"
            + " s");
    assertThat(dump.toString())
        .contains("job chat of 4 ranks, of which 4 answer")
        .contains("rank 2 answers: process 1002 on host")
        .contains(
            "lane 0: 1042 collectives enqueued, 1042 done; calls in flight: 1; the leading rank has"
                + " enqueued 1 more");
  }

  @Test
  void shouldAttributeAWaitToTheRankThatDoesNotAnswer() {
    RankReport sees = report(0, NOW, Map.of(2, 3 * SECOND), job(7, 6, waits(7, 7, "all-gather")));
    JobDump dump =
        JobDump.of(
            3,
            List.of(
                RankAnswer.of(0, sees, NOW, NOW),
                waiting(1, 7),
                RankAnswer.none(2, "no answer within 500 ms")));
    assertVerdict(
        dump,
        2,
        "rank 2 does not answer, and in all-gather 7 of lane 0 ranks 0 and 1 wait for 1.0 s");
    assertThat(dump.toString())
        .contains(
            "rank 2 does not answer: no answer within 500 ms; no heartbeat for 3.0 s or more");
  }

  private static boolean isSettled(long waitedNs, Map<Integer, Long> silentNs, RankAnswer other) {
    CallRecord call = call(7, 7, "barrier", NOW - waitedNs, 0, Outcome.IN_FLIGHT);
    RankReport sees = report(0, NOW, silentNs, job(7, 6, call));
    RankAnswer none = RankAnswer.none(2, "");
    return JobDump.of(3, List.of(RankAnswer.of(0, sees, NOW, NOW), other, none)).isSettled();
  }

  @Test
  void shouldBeSettledIfTheAnsweringRanksAlsoMissTheOthers() {
    RankAnswer answers = answer(1);
    assertThat(isSettled(SECOND / 2, Map.of(), answers)).isFalse();
    assertThat(isSettled(SECOND, Map.of(), answers)).isTrue();
    assertThat(isSettled(0, Map.of(2, SECOND), answers)).isTrue();
    assertThat(isSettled(0, Map.of(2, SECOND), RankAnswer.none(1, ""))).isFalse();
    // Rank 1 is slow, but sends heartbeats.
    assertThat(isSettled(SECOND, Map.of(2, SECOND), RankAnswer.none(1, ""))).isFalse();
    assertThat(JobDump.of(1, List.of(RankAnswer.none(0, ""))).isSettled()).isFalse();
  }

  @Test
  void shouldNameTheRankThatKernelsWaitForIfAllHaveBegun() {
    List<LaneReport> lanes = List.of(new LaneReport(TAG, 5, 4, 1));
    List<CallRecord> calls = List.of(waits(5, 5, "broadcast"));
    GroupReport begun = new GroupReport(0, "", List.of(), "", 1, List.of(), lanes, calls);
    JobDump dump = JobDump.of(3, List.of(answer(0, begun), answer(1, begun), answer(2, begun)));
    assertVerdict(
        dump,
        1,
        "ranks 0, 1 and 2 wait for 1.0 s in broadcast 5 of lane 0; all ranks have begun it;"
            + " their kernels last waited long for rank 1");
  }

  @Test
  void shouldCountCallsOfPipelinesThatRanksCutDifferently() {
    RankAnswer pipeline = answer(0, job(8, 4, waits(5, 8, "pipeline")));
    RankAnswer behind = answer(1, job(6, 4, waits(5, 6, "pipeline")));
    JobDump dump = JobDump.of(2, List.of(pipeline, behind));
    // Both ranks are in the older of the two calls.
    assertThat(dump.waits().get(0).call().label()).isEqualTo("pipeline 5 to 6");
  }

  @Test
  void shouldNameRanksOfASubGroupByTheirNumbersInTheJob() {
    RankAnswer waits = answer(1, group(77, List.of(1, 3), 9, 8, waits(9, 9, "all-reduce")));
    RankAnswer behind = answer(3, group(77, List.of(1, 3), 8, 8));
    JobDump dump = JobDump.of(4, List.of(answer(0), waits, answer(2), behind));
    assertVerdict(
        dump,
        3,
        "rank 3 has not begun all-reduce 9 of lane 0 of sub-group tp, in which rank 1 waits for"
            + " 1.0 s");
  }

  @Test
  void shouldAttributeNoRankWhileAJobMakesProgress() {
    CallRecord young = call(2, 2, "all-reduce", NOW - 1000, 0, Outcome.IN_FLIGHT);
    JobDump dump = JobDump.of(2, List.of(answer(0, job(2, 1, young)), answer(1, job(1, 1))));
    assertThat(dump.blamed()).isEmpty();
    assertThat(dump.verdict())
        .isEqualTo("all ranks answer, and none waits in a collective for over 100 ms");
  }

  @Test
  void shouldRefuseMalformedReports() {
    GroupReport group = group(3, List.of(0, 1), 9, 8, done(8), waits(9, 9, "all-reduce"));
    byte[] whole = report(1, NOW, Map.of(0, SECOND), group).encode(true);
    for (int length = 0; length < whole.length; length++) {
      byte[] cut = Arrays.copyOf(whole, length);
      assertThatThrownBy(() -> RankReport.decode(cut)).isInstanceOf(TransportFailure.class);
    }
    Random random = new Random(5);
    for (int i = 0; i < 2000; i++) {
      byte[] changed = whole.clone();
      changed[random.nextInt(changed.length)] = (byte) random.nextInt();
      try {
        RankReport.decode(changed);
      } catch (TransportFailure e) {
        assertThat(e).hasMessageContaining("malformed report");
      }
    }
  }

  @Test
  void shouldSendAllCallsOnlyIfAsked() {
    CallRecord[] many = new CallRecord[100];
    for (int i = 0; i < many.length; i++) {
      many[i] = done(i + 1);
    }
    RankReport report = report(0, NOW, Map.of(), job(100, 100, many));
    assertThat(RankReport.decode(report.encode(true))).isEqualTo(report);
    assertThat(RankReport.decode(report.encode(false)).groups().get(0).calls())
        .containsExactly(Arrays.copyOfRange(many, 90, 100));
  }

  @Test
  void shouldAlignTheClocksOfRanksInATrace() throws IOException {
    // Rank 1's clock is 1000 s ahead.
    long from = NOW + 999 * SECOND;
    CallRecord call =
        new CallRecord(
            TAG,
            1,
            1,
            1,
            "all-reduce",
            "a\"b",
            "",
            64,
            from,
            from,
            from + SECOND,
            from + 2000,
            from + 7000,
            Outcome.DONE);
    RankReport ahead =
        new RankReport(
            "", 1, 2, 1, "host", NOW + 1000 * SECOND, Map.of(), List.of(job(1, 1, call)));
    JobDump dump =
        JobDump.of(
            2, List.of(answer(0, job(1, 1, done(1))), RankAnswer.of(1, ahead, NOW - 10, NOW + 10)));
    List<String> names = new ArrayList<>();
    List<Double> begins = new ArrayList<>();
    try (JsonParser json = new JsonFactory().createParser(TraceFile.of(List.of(dump)))) {
      while (json.nextToken() != null) {
        if (json.currentToken() == JsonToken.FIELD_NAME && json.currentName().equals("ts")) {
          json.nextToken();
          begins.add(json.getDoubleValue());
        } else if (json.currentToken() == JsonToken.VALUE_STRING
            && json.currentName().equals("name")) {
          names.add(json.getText());
        }
      }
    }
    assertThat(names)
        .contains("rank 0 chat", "rank 1", "lane 0", "all-reduce 1", "lane 0 on the device");
    assertThat(begins)
        .containsExactly(
            (NOW - 5 * SECOND + 1000) / 1e3, (NOW - SECOND) / 1e3, (NOW - SECOND + 2000) / 1e3);
  }

  @Test
  void shouldWriteADumpFileIfTheJobFailed(@TempDir Path folder) throws IOException {
    CallRecord failed = call(9, 9, "all-reduce", NOW, NOW + 5, Outcome.FAILED);
    GroupReport job = job(10, 8, done(8), failed, waits(10, 10, "all-gather"));
    DumpFile file = new DumpFile(0, 2, job, RemoteFailure.of(1, "rank %s died", 1));
    assertThat(file.summary())
        .isEqualTo(
            "rank 0 of 2 failed (remote_failure) in all-reduce 9 of 64 bytes float by pipe,"
                + " all-gather 10 of 64 bytes float by pipe");
    Path written = file.write(folder.resolve("new").toString()).orElseThrow();
    assertThat(Files.readAllLines(written))
        .contains("rank 1 died")
        .anyMatch(line -> line.startsWith("100 9 all-reduce_9_of_64_bytes_float_by_pipe FAILED"))
        .anyMatch(line -> line.matches("100 10 all-gather_10_.* IN_FLIGHT [-0-9.]+ - -"));
    // At the names of the next files, links that another user may have placed.
    Path victim = Files.writeString(folder.resolve("victim"), "untouched");
    Matcher name = Pattern.compile("(.*-)(\\d+)\\.txt").matcher(written.getFileName().toString());
    assertThat(name.matches()).isTrue();
    int next = Integer.parseInt(name.group(2)) + 1;
    for (int number = next; number < next + 8; number++) {
      Files.createSymbolicLink(written.resolveSibling(name.group(1) + number + ".txt"), victim);
    }
    assertThat(file.write(written.getParent().toString()).orElseThrow()).isRegularFile();
    assertThat(victim).hasContent("untouched");
    assertThat(file.write("")).isEmpty();
    assertThat(file.write(written.toString())).as("no folder").isEmpty();
  }
}
