// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.benchmarks.Bench;
import io.fluxccl.benchmarks.Row;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** {@code fluxccl bench}: its list, its processes and their rows. */
@Tag("multiprocess")
@Timeout(300)
class BenchMainTest {
  @TempDir private Path folder;

  private static Cli bench(String line) {
    String[] args = line.split(" ");
    return Cli.capture(
        new GroupBackend(),
        BenchMain.class,
        Map.of(),
        context ->
            RootCommand.commandLine(BenchMain.PROGRAM, BenchMain.commands(context), context, args)
                .execute(args));
  }

  @Test
  void shouldListEachBenchmarkOnce() {
    List<String> ids = BenchMain.benches().map(Bench::id).toList();
    assertThat(ids).doesNotHaveDuplicates();
    assertThat(bench("--list").assertOk().out().lines().map(line -> line.split(" ")[0]))
        .containsExactlyElementsOf(ids);
  }

  @Test
  void shouldPrintAndWriteTheRowsOfItsProcess() throws Exception {
    Path json = folder.resolve("rows.jsonl");

    Cli run = bench("recorder --json " + json + " 1024 3 20");
    assertThat(run.code()).as(run.err()).isZero();
    List<Row> rows = Files.readAllLines(json).stream().map(Row::parse).toList();
    assertThat(rows).hasSize(4);
    assertThat(rows.get(0).text("id")).isEqualTo("recorder/a-call-with-the-recorder-percentile-0");
    assertThat(rows.get(0).number("ratio")).isPresent();
    assertThat(rows.get(0).text("command")).isEqualTo("`fluxccl bench recorder 1024 3 20`");
    assertThat(rows.get(0).fields()).containsKeys("ours", "peer", "unit", "machine", "date");
    assertThat(run.out()).hasLineCount(4).contains("a call with the recorder").contains("ratio");
  }

  @Test
  void shouldTakeTheRowsOfTheFirstOfSeveralProcesses() {
    Cli run = bench("host-collectives all-reduce 1024 4096 4 1");
    assertThat(run.code()).as(run.err()).isZero();
    assertThat(run.out().lines().map(line -> line.split(" +")[2])).containsExactly("1024", "4096");
  }

  @Test
  void shouldStopABenchmarkAtItsLimit() {
    Cli run = bench("recorder --limit 1 1024 100000 4000").assertFails(ExitCode.FAILURE);
    assertThat(run.out()).isEqualTo("recorder FAILED: stopped after 1 s, see --limit\n");
  }

  @Test
  void shouldFailIfTheBenchmarkFails() {
    Cli run = bench("host-collectives no-such 1 1 1 1");
    run.assertFails(ExitCode.FAILURE, "Collective.NO_SUCH");
    assertThat(run.out()).contains("host-collectives FAILED: exit code 1");
  }

  @ParameterizedTest
  @CsvSource({
    "no-such, Unmatched argument at index 0",
    "gpu no-such, there is no benchmark no-such",
    "perf --tune tuning --ranks 2, use 'fluxccl perf --tune'"
  })
  void shouldRefuseUnknownBenchmarksAndTuning(String line, String message) {
    bench(line).assertFails(ExitCode.USAGE, message);
  }

  @Test
  void shouldKeepNumbersOfARowAsTheyAreWritten() {
    String line = "{\"id\":\"a/b\",\"ours\":1.90,\"ratio\":0.10,\"goal\":\"ratio <= 0.2\"}";

    assertThat(Row.parse(line).toJson()).isEqualTo(line);
    assertThat(Row.parse(line).isReached()).isTrue();
    assertThat(Row.parse(line.replace("0.10", "0.30")).isReached()).isFalse();
    assertThatThrownBy(() -> Row.parse("[1]")).hasMessageContaining("not a row");
  }

  @Test
  void shouldAddRowsUnderTheNameOfTheBenchmark() {
    List<Row> rows = new ArrayList<>();
    Bench.Rows to = new Bench.Rows("fifo", rows::add);

    to.add("push, p50", 3.4567, "us", "<= 3.6");
    to.compare("put", 390, 392.6, "GB/s", "raw copy", ">= 0.95");

    assertThat(rows.get(0).toJson())
        .isEqualTo(
            "{\"id\":\"fifo/push-p50\",\"what\":\"push, p50\",\"ours\":3.457,\"unit\":\"us\","
                + "\"goal\":\"ours <= 3.6\"}");
    assertThat(rows.get(1).text("ratio")).isEqualTo("0.9934");
    assertThat(rows.get(1).isReached()).isTrue();
  }
}
