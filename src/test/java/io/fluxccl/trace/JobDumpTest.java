// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.trace;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.RemoteFailure;
import io.fluxccl.TransportFailure;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

@Tag("jdk")
class JobDumpTest {
  private static final int TAG = 100;
  private static final long NOW = 50_000_000_000L;
  private static final long SECOND = 1_000_000_000L;

  private static Snapshot call(
      long first, long last, String kind, long enqueued, long ended, Outcome outcome) {
    long begun = ended == 0 ? 0 : enqueued;
    return new CallRecord(
            TAG, last, first, last, kind, "float", "pipe", 64, enqueued, begun, ended, 0, 0,
            outcome)
        .tree(NOW);
  }

  /** Returns a call that has waited for a second. */
  private static Snapshot waits(long first, long last, String kind) {
    return call(first, last, kind, NOW - SECOND, 0, Outcome.IN_FLIGHT);
  }

  private static Snapshot done(long number) {
    long from = NOW - 5 * SECOND + number * 1000;
    return call(number, number, "all-reduce", from, from + 500, Outcome.DONE);
  }

  private static Snapshot group(
      long id, List<Integer> members, long enqueued, long completed, Snapshot... calls) {
    Snapshot lane =
        Snapshot.EMPTY
            .with("tag", TAG)
            .with("enqueued", enqueued)
            .with("done", completed)
            .with("in_flight", calls.length);
    return Snapshot.EMPTY
        .with("id", id)
        .with("group", id == 0 ? "" : "tp")
        .with("members", members)
        .with("failure", "")
        .with("kernels_waited_for", -1)
        .with("setups", List.of())
        .with("lanes", List.of(lane))
        .with("calls", List.of(calls))
        .with("now_ns", NOW);
  }

  /** Returns the part of the group of all ranks. */
  private static Snapshot job(long enqueued, long completed, Snapshot... calls) {
    return group(0, List.of(), enqueued, completed, calls);
  }

  private static Snapshot snapshot(int rank, Snapshot... groups) {
    return Snapshot.EMPTY
        .with("job", "chat")
        .with("process", 1000 + rank)
        .with("host", "host")
        .with("now_ns", NOW)
        .with("groups", List.of(groups));
  }

  private static Snapshot answer(int rank, Snapshot... groups) {
    Snapshot received = Snapshot.decode(snapshot(rank, groups).encode());
    return JobDump.answer(rank, received, NOW, NOW);
  }

  /** Returns the answer of a rank that gets no heartbeat from another one. */
  private static Snapshot answer(int rank, int silent, long silentNs, Snapshot group) {
    Snapshot missed = Snapshot.EMPTY.with("rank", silent).with("silent_ns", silentNs);
    return answer(rank, group).with("silent", List.of(missed));
  }

  private static Snapshot waiting(int rank, long number) {
    return answer(
        rank, job(number, number - 1, done(number - 1), waits(number, number, "all-reduce")));
  }

  private static void assertVerdict(JobDump dump, int blamed, String verdict) {
    assertThat(dump.verdict()).isEqualTo(verdict);
    assertThat(dump.blamed()).containsExactly(blamed);
  }

  @Test
  void shouldAttributeACallToTheRankThatHasNotStartedIt() {
    Snapshot behind = answer(2, job(1042, 1042, done(1042)));
    JobDump dump =
        new JobDump(List.of(waiting(3, 1043), waiting(0, 1043), behind, waiting(1, 1043)));
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
    Snapshot sees = answer(0, 2, 3 * SECOND, job(7, 6, waits(7, 7, "all-gather")));
    Snapshot none = JobDump.noAnswer(2, "no answer within 500 ms");
    JobDump dump = new JobDump(List.of(sees, waiting(1, 7), none));
    assertVerdict(
        dump,
        2,
        "rank 2 does not answer, and in all-gather 7 of lane 0 ranks 0 and 1 wait for 1.0 s");
    assertThat(dump.toString())
        .contains(
            "rank 2 does not answer: no answer within 500 ms; no heartbeat for 3.0 s or more");
  }

  private static boolean isSettled(long waitedNs, long silentNs, Snapshot other) {
    Snapshot group = job(7, 6, call(7, 7, "barrier", NOW - waitedNs, 0, Outcome.IN_FLIGHT));
    Snapshot sees = silentNs == 0 ? answer(0, group) : answer(0, 2, silentNs, group);
    return new JobDump(List.of(sees, other, JobDump.noAnswer(2, ""))).isSettled();
  }

  @Test
  void shouldBeSettledIfTheAnsweringRanksAlsoMissTheOthers() {
    Snapshot answers = answer(1);
    assertThat(isSettled(SECOND / 2, 0, answers)).isFalse();
    assertThat(isSettled(SECOND, 0, answers)).isTrue();
    assertThat(isSettled(0, SECOND, answers)).isTrue();
    assertThat(isSettled(0, SECOND, JobDump.noAnswer(1, ""))).isFalse();
    // Rank 1 is slow, but sends heartbeats.
    assertThat(isSettled(SECOND, SECOND, JobDump.noAnswer(1, ""))).isFalse();
    assertThat(new JobDump(List.of(JobDump.noAnswer(0, ""))).isSettled()).isFalse();
  }

  @Test
  void shouldNameTheRankThatKernelsWaitForIfAllHaveBegun() {
    Snapshot begun = job(5, 4, waits(5, 5, "broadcast")).with("kernels_waited_for", 1);
    JobDump dump = new JobDump(List.of(answer(0, begun), answer(1, begun), answer(2, begun)));
    assertVerdict(
        dump,
        1,
        "ranks 0, 1 and 2 wait for 1.0 s in broadcast 5 of lane 0; all ranks have begun it;"
            + " their kernels last waited long for rank 1");
  }

  @Test
  void shouldCountCallsOfPipelinesThatRanksCutDifferently() {
    Snapshot pipeline = answer(0, job(8, 4, waits(5, 8, "pipeline")));
    Snapshot behind = answer(1, job(6, 4, waits(5, 6, "pipeline")));
    JobDump dump = new JobDump(List.of(pipeline, behind));
    // Both ranks are in the older of the two calls.
    assertThat(dump.waits().get(0).text("call")).isEqualTo("pipeline 5 to 6");
  }

  @Test
  void shouldNameRanksOfASubGroupByTheirNumbersInTheJob() {
    Snapshot waits = answer(1, group(77, List.of(1, 3), 9, 8, waits(9, 9, "all-reduce")));
    Snapshot behind = answer(3, group(77, List.of(1, 3), 8, 8));
    JobDump dump = new JobDump(List.of(answer(0), waits, answer(2), behind));
    assertVerdict(
        dump,
        3,
        "rank 3 has not begun all-reduce 9 of lane 0 of sub-group tp, in which rank 1 waits for"
            + " 1.0 s");
  }

  @Test
  void shouldAttributeNoRankWhileAJobMakesProgress() {
    Snapshot young = call(2, 2, "all-reduce", NOW - 1000, 0, Outcome.IN_FLIGHT);
    JobDump dump = new JobDump(List.of(answer(0, job(2, 1, young)), answer(1, job(1, 1))));
    assertThat(dump.blamed()).isEmpty();
    assertThat(dump.verdict())
        .isEqualTo("all ranks answer, and none waits in a collective for over 100 ms");
  }

  private static byte[] encoded() {
    return snapshot(1, group(3, List.of(0, 1), 9, 8, done(8), waits(9, 9, "all-reduce"))).encode();
  }

  @Test
  void shouldRefuseMalformedSnapshots() {
    byte[] whole = encoded();
    for (int length = 0; length < whole.length; length++) {
      byte[] cut = Arrays.copyOf(whole, length);
      assertThatThrownBy(() -> Snapshot.decode(cut)).isInstanceOf(TransportFailure.class);
    }
    assertRefused(Arrays.copyOf(whole, whole.length + 1), "end");
    assertRefused(sameNameTwice(), "a=twice");
    Snapshot deep = Snapshot.EMPTY;
    Snapshot wide = Snapshot.EMPTY;
    for (int i = 0; i < 8; i++) {
      deep = Snapshot.EMPTY.with("deeper", deep);
    }
    for (int i = 0; i < 65; i++) {
      wide = wide.with("field " + i, i);
    }
    assertRefused(deep.encode(), "level");
    assertRefused(wide.encode(), "count");
    assertRefused(Snapshot.EMPTY.with("long", "x".repeat(65537)).encode(), "text");
  }

  private static byte[] sameNameTwice() {
    byte[] bytes = Snapshot.EMPTY.with("a", 1).with("b", 2).encode();
    int second = bytes.length - 8; // the number of the name, its text, a type and a value
    byte[] name = {0, bytes[bytes.length - 2], bytes[bytes.length - 1]};
    byte[] twice = Arrays.copyOf(bytes, second + name.length);
    System.arraycopy(name, 0, twice, second, name.length);
    return twice;
  }

  private static void assertRefused(byte[] bytes, String problem) {
    assertThatThrownBy(() -> Snapshot.decode(bytes))
        .isInstanceOf(TransportFailure.class)
        .hasMessageContaining("malformed snapshot: " + problem);
  }

  @Test
  void shouldShowAnyChangedSnapshotOrRefuseIt() {
    byte[] whole = encoded();
    Random random = new Random(5);
    for (int i = 0; i < 2000; i++) {
      byte[] changed = whole.clone();
      changed[random.nextInt(changed.length)] = (byte) random.nextInt();
      show(changed);
    }
  }

  static void show(byte[] bytes) {
    try {
      Snapshot answer = JobDump.answer(1, Snapshot.decode(bytes), NOW, NOW);
      JobDump dump = new JobDump(List.of(waiting(0, 9), answer));
      assertThat(Snapshot.decode(answer.encode()).encode()).isEqualTo(answer.encode());
      assertThat(dump.toString() + dump.json() + TraceFile.of(List.of(dump))).isNotEmpty();
    } catch (TransportFailure e) {
      assertThat(e).hasMessageContaining("malformed snapshot");
    }
  }

  @Test
  void shouldReadSnapshotsOfNewerAndOlderRanks() {
    Snapshot lane = Snapshot.EMPTY.with("tag", TAG).with("color", List.of("red", 7));
    Snapshot newer = job(1, 1, done(1).with("joules", 12)).with("lanes", List.of(lane, "other"));
    Snapshot older = Snapshot.EMPTY.with("lanes", 5).with("calls", List.of(Snapshot.EMPTY));
    JobDump dump = new JobDump(List.of(answer(0, newer.with("mood", lane)), answer(1, older)));
    assertThat(dump.toString())
        .contains("lane 0: 0 collectives enqueued, 0 done; calls in flight: 0")
        .contains("rank 1 answers: process 1001 on host");
    assertThat(dump.json()).contains("\"joules\" : 12").contains("\"color\" : [ \"red\", 7 ]");
  }

  @Test
  void shouldSendAllCallsOnlyIfAsked() {
    Snapshot[] many = new Snapshot[100];
    for (int i = 0; i < many.length; i++) {
      many[i] = done(i + 1);
    }
    Snapshot group = answer(0, job(100, 100, many)).trees("groups").get(0);
    assertThat(group.trees("calls")).hasSize(100);
    assertThat(CallRecord.withFewCalls(group).trees("calls"))
        .extracting(CallRecord::label)
        .containsExactlyElementsOf(Stream.of(many).skip(90).map(CallRecord::label).toList());
  }

  @Test
  void shouldPrintTheDumpAsJsonAndAsText() throws IOException {
    Snapshot odd = job(7, 6, done(6), waits(7, 7, "all-\"gather\"\\\u0001\u20ac"));
    Snapshot sees = answer(0, 2, 3 * SECOND, odd.with("setups", List.of("one", "two")));
    Snapshot none = JobDump.noAnswer(2, "no answer within 500 ms");
    JobDump dump = new JobDump(List.of(sees, answer(1, job(6, 6, done(6))), none));
    assertThat(dump.json() + "\n").isEqualTo(golden("dump.json"));
    assertThat(dump + "\n").isEqualTo(golden("dump.txt"));
  }

  private static String golden(String name) throws IOException {
    return Files.readString(Path.of("src/test/resources/io/fluxccl/trace", name));
  }

  @Test
  void shouldAlignTheClocksOfRanksInATrace() {
    // Rank 1's clock is 1000 s ahead.
    long from = NOW + 999 * SECOND;
    long now = NOW + 1000 * SECOND;
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
    Snapshot ahead =
        snapshot(1, job(1, 1, call.tree(now)).with("now_ns", now))
            .with("job", "")
            .with("now_ns", now);
    JobDump dump =
        new JobDump(
            List.of(answer(0, job(1, 1, done(1))), JobDump.answer(1, ahead, NOW - 10, NOW + 10)));
    String trace = TraceFile.of(List.of(dump));
    assertThat(fields(trace, "name"))
        .contains(
            "\"rank 0 chat\"",
            "\"rank 1\"",
            "\"lane 0\"",
            "\"all-reduce 1\"",
            "\"lane 0 on the device\"");
    assertThat(fields(trace, "type")).contains("\"a\\\"b\"");
    assertThat(fields(trace, "ts"))
        .containsExactly(
            micros(NOW - 5 * SECOND + 1000), micros(NOW - SECOND), micros(NOW - SECOND + 2000));
  }

  private static String micros(long nanos) {
    return nanos / 1000 + ".000";
  }

  /** Returns the values of fields of this name. */
  private static List<String> fields(String json, String name) {
    String field = "\"" + name + "\" : ";
    return json.lines()
        .filter(line -> line.strip().startsWith(field))
        .map(line -> line.strip().substring(field.length()).replaceAll(",$", ""))
        .toList();
  }

  @Test
  void shouldWriteADumpFileIfTheJobFailed(@TempDir Path folder) throws IOException {
    Snapshot failed = call(9, 9, "all-reduce", NOW, NOW + 5, Outcome.FAILED);
    Snapshot job = job(10, 8, done(8), failed, waits(10, 10, "all-gather"));
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

  private static Snapshot withNames(int rank, String... names) {
    List<Snapshot> calls =
        Stream.of(names)
            .map(
                name ->
                    Snapshot.EMPTY
                        .with("name", name)
                        .with("call", "all-reduce")
                        .with("since_ns", (rank + 1) * SECOND))
            .toList();
    Snapshot lane =
        Snapshot.EMPTY
            .with("tag", TAG)
            .with("enqueued", 7)
            .with("done", 7)
            .with("in_flight", 0)
            .with("named", calls);
    return answer(rank, job(7, 7).with("lanes", List.of(lane)));
  }

  @Test
  void shouldNameTheRanksThatDoNotHaveACallThatMatchesByName() {
    JobDump dump =
        new JobDump(List.of(withNames(0, "x", "all"), withNames(1, "all"), withNames(2, "x")));
    assertVerdict(
        dump,
        1,
        "rank 1 has not begun all-reduce 'x' of lane 0, in which ranks 0 and 2 wait for 3.0 s");
    assertThat(dump.toString())
        .contains(
            "named calls that have not begun: 2; the oldest, all-reduce 'x', waits for 1.0 s");
    assertThat(dump.json()).contains("\"x\"");
  }

  @Test
  void shouldNotBlameARankOfWhichItHasOnlyTheOldestCallsByName() {
    Snapshot cut = withNames(2, "other");
    Snapshot group = cut.trees("groups").get(0);
    Snapshot lane = group.trees("lanes").get(0).with("named_all", 65);
    cut = answer(2, group.with("lanes", List.of(lane)));
    JobDump dump = new JobDump(List.of(withNames(0, "x", "other"), withNames(1, "other"), cut));
    Snapshot wait = dump.waits().get(0);
    assertThat(wait.integers("not_begun")).containsExactly(1);
    assertThat(dump.blamed()).containsExactly(1);
    assertThat(dump.toString()).contains("named calls that have not begun: 65; the oldest");
  }

  @Test
  void shouldReportNoWaitInACallThatAllRanksHaveByName() {
    JobDump dump = new JobDump(List.of(withNames(0, "x"), withNames(1, "x")));
    assertThat(dump.blamed()).isEmpty();
  }

  @Test
  void shouldPrintNullForNumbersThatJsonDoesNotHave() {
    Snapshot numbers =
        Snapshot.EMPTY.with("rate", Double.NaN).with("ratio", 1.5).with("limit", 1.0 / 0);
    assertThat(numbers.toString().replaceAll("\\s", ""))
        .isEqualTo("{\"rate\":null,\"ratio\":1.5,\"limit\":null}");
  }
}
