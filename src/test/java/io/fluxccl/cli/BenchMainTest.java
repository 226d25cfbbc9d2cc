// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.benchmarks.Bench;
import io.fluxccl.benchmarks.Row;
import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** {@code fluxccl bench}: its list, its processes and their rows. */
@Tag("multiprocess")
@Timeout(300)
class BenchMainTest {
  @TempDir private Path folder;
  private final ByteArrayOutputStream out = new ByteArrayOutputStream();
  private final ByteArrayOutputStream err = new ByteArrayOutputStream();

  private int bench(String... args) {
    CliContext context =
        new CliContext(
            new GroupBackend(),
            BenchMain.class.getName(),
            Map.of(),
            new PrintStream(out, true, StandardCharsets.UTF_8),
            new PrintStream(err, true, StandardCharsets.UTF_8));
    return RootCommand.commandLine(BenchMain.PROGRAM, BenchMain.commands(context), context, args)
        .execute(args);
  }

  private String out() {
    return out.toString(StandardCharsets.UTF_8);
  }

  private String err() {
    return err.toString(StandardCharsets.UTF_8);
  }

  @Test
  void shouldListEachBenchmarkOnce() {
    assertThat(bench("--list")).isZero();

    List<String> ids = BenchMain.benches().map(Bench::id).toList();
    assertThat(ids).doesNotHaveDuplicates();
    assertThat(out().lines().map(line -> line.split(" ")[0])).containsExactlyElementsOf(ids);
  }

  @Test
  void shouldPrintAndWriteTheRowsOfItsProcess() throws Exception {
    Path json = folder.resolve("rows.jsonl");

    assertThat(bench("recorder", "--json", json.toString(), "1024", "3", "20")).as(err()).isZero();

    List<Row> rows = Files.readAllLines(json).stream().map(Row::parse).toList();
    assertThat(rows).hasSize(4);
    assertThat(rows.get(0).text("id")).isEqualTo("recorder/a-call-with-the-recorder-percentile-0");
    assertThat(rows.get(0).number("ratio")).isPresent();
    assertThat(rows.get(0).text("command")).isEqualTo("`fluxccl bench recorder 1024 3 20`");
    assertThat(rows.get(0).fields()).containsKeys("ours", "peer", "unit", "machine", "date");
    assertThat(out()).hasLineCount(4).contains("a call with the recorder").contains("ratio");
  }

  @Test
  void shouldTakeTheRowsOfTheFirstOfSeveralProcesses() {
    assertThat(bench("host-collectives", "all-reduce", "1024", "4096", "4", "1"))
        .as(err())
        .isZero();

    assertThat(out().lines().map(line -> line.split(" +")[2])).containsExactly("1024", "4096");
  }

  @Test
  void shouldStopABenchmarkAtItsLimit() {
    assertThat(bench("recorder", "--limit", "1", "1024", "100000", "4000"))
        .isEqualTo(ExitCode.FAILURE);

    assertThat(out()).isEqualTo("recorder FAILED: stopped after 1 s, see --limit\n");
  }

  @Test
  void shouldFailIfTheBenchmarkFails() {
    assertThat(bench("host-collectives", "no-such", "1", "1", "1", "1"))
        .isEqualTo(ExitCode.FAILURE);

    assertThat(out()).contains("host-collectives FAILED: exit code 1");
    assertThat(err()).contains("Collective.NO_SUCH");
  }

  @Test
  void shouldRefuseUnknownBenchmarks() {
    assertThat(bench("no-such")).isEqualTo(ExitCode.USAGE);
    assertThat(bench("gpu", "no-such")).isEqualTo(ExitCode.USAGE);
    assertThat(err()).contains("there is no benchmark no-such");
  }

  @Test
  void shouldMeasureNcclBesideNoTuning() {
    assertThat(bench("perf", "--tune", folder.resolve("t").toString(), "--ranks", "2"))
        .isEqualTo(ExitCode.USAGE);
    assertThat(err()).contains("use 'fluxccl perf --tune'");
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
