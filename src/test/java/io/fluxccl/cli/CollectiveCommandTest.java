// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.tuple;

import io.fluxccl.benchmarks.Row;
import io.fluxccl.cli.FakeBackend.Fault;
import io.fluxccl.collective.Collective;
import io.fluxccl.collective.Tuning;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import javax.xml.parsers.DocumentBuilderFactory;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;
import org.w3c.dom.Document;
import org.w3c.dom.Element;
import org.w3c.dom.NodeList;

@Timeout(60)
class CollectiveCommandTest {
  @TempDir private Path folder;

  private static final int OUT_OF_PLACE_TIME = 5;
  private static final int OUT_OF_PLACE_WRONG = 8;
  private static final int IN_PLACE_WRONG = 12;

  private final FakeBackend backend = new FakeBackend();

  private Cli perf(String options) {
    return perfOf("all-reduce", options);
  }

  private Cli perfOf(String collective, String options) {
    String warmUp = options.contains("--jit-warmup") ? "" : " --jit-warmup 0";
    String line = "perf " + collective + " --in-process " + options + warmUp;
    return Cli.run(backend, line.split(" "));
  }

  private static String root(Collective collective) {
    return " --root " + (collective.hasRoot() ? 2 : 0);
  }

  @Test
  void shouldPrintARowForEachSizeWhenResultsAreRight() {
    Cli run = perf("--ranks 3 -b 8 -e 32 -n 2 -w 1").assertOk();
    assertThat(run.rows()).extracting(row -> row.get(0)).containsExactly("8", "16", "32");
    for (List<String> row : run.rows()) {
      assertThat(row).hasSize(13);
      assertThat(row.subList(2, 5)).containsExactly("float", "sum", "-1");
      assertThat(row.get(OUT_OF_PLACE_WRONG)).isEqualTo("0");
      assertThat(row.get(IN_PLACE_WRONG)).isEqualTo("0");
    }
    assertThat(run.out())
        .contains("# nRanks 3 minBytes 8 maxBytes 32 step: 2(factor)")
        .contains("Rank  2 Pid", "# Out of bounds values : 0 OK", "# Avg bus bandwidth    : ");
    assertThat(backend.openRanks()).isZero();
  }

  @ParameterizedTest
  @ValueSource(ints = {0, 1})
  void shouldStateThatRanksShareProcessorsIfThereAreMoreRanks(int more) {
    int processors = Runtime.getRuntime().availableProcessors();
    Cli run = perf("--ranks " + (processors + more) + " -b 8 -e 8 -n 1");
    assertThat(run.out().contains("ranks share " + processors + " processors")).isEqualTo(more > 0);
  }

  @ParameterizedTest
  @EnumSource(
      value = Collective.class,
      mode = EnumSource.Mode.EXCLUDE,
      names = {"BARRIER", "FUSED_ALL_REDUCE", "DISPATCH", "COMBINE"})
  void shouldFindOneWrongElementOfAnyCollective(Collective collective) {
    backend.setFault(Fault.CORRUPTS, 2, 1);
    Cli run = perfOf(collective.label(), "--ranks 3 --counts 4 -n 1" + root(collective));
    assertThat(run.code()).isEqualTo(ExitCode.FAILURE);
    assertThat(run.rows().get(0).get(OUT_OF_PLACE_WRONG)).isEqualTo("1");
  }

  @ParameterizedTest
  @CsvSource({
    "all-reduce,     2, the guards of both ranks",
    // The root's guard, and the first element of the other rank's output.
    "reduce,         2, a rank without output",
    "gather,         2, a rank without output"
  })
  void shouldFindWritesPastTheEnd(String collective, String wrong, String what) {
    backend.setFault(Fault.OVERRUNS, 0);
    Cli run = perfOf(collective, "--ranks 2 --counts 4 -n 1");
    assertThat(run.code()).as(what).isEqualTo(ExitCode.FAILURE);
    assertThat(run.rows().get(0).get(OUT_OF_PLACE_WRONG)).as(what).isEqualTo(wrong);
    if (collective.equals("all-reduce")) {
      assertThat(run.rows().get(0).get(IN_PLACE_WRONG)).isEqualTo(wrong);
    }
  }

  /** Of 3 ranks with 4 elements each, in place. */
  @ParameterizedTest
  @CsvSource({
    "gather,         1, 3, the part of another rank where the output of the root would lie",
    "gather,         1, 8, the part of another rank where the output of the root would lie",
    "gather,         1, 5, the own input",
    "scatter,        1, 0, the part of another rank where the input of the root would lie",
    "scatter,        1, 8, the part of another rank where the input of the root would lie",
    "scatter,        0, 8, the input beside the output",
    "reduce-scatter, 1, 3, the input beside the output",
    "reduce-scatter, 1, 8, the input beside the output",
    "reduce,         1, 2, the own input"
  })
  void shouldFailIfMemoryOutsideTheOutputIsWrittenInPlace(
      String collective, int rank, int element, String what) {
    backend.setFault(Fault.SCRIBBLES, rank, element);
    Cli run = perfOf(collective, "--ranks 3 --counts 4 -n 1 --placement in");
    assertThat(run.code()).as(what).isEqualTo(ExitCode.FAILURE);
    assertThat(run.rows().get(0).get(IN_PLACE_WRONG)).as(what).isEqualTo("1");
  }

  @Test
  void shouldCountWrongElementsOfAllRanksAndFailWhenAReductionIsWrong() {
    backend.setFault(Fault.CORRUPTS, 1, 0, 2, 7);
    Cli run = perf("--ranks 2 --counts 8 -n 1 -d half,double");
    assertThat(run.code()).isEqualTo(ExitCode.FAILURE);
    assertThat(run.rows()).extracting(row -> row.get(OUT_OF_PLACE_WRONG)).containsExactly("3", "3");
    assertThat(run.rows()).extracting(row -> row.get(IN_PLACE_WRONG)).containsExactly("3", "3");
    assertThat(run.out()).contains("# Out of bounds values : 12 FAILED");
  }

  @Test
  void shouldPrintNotAvailableIfChecksAreOff() {
    backend.setFault(Fault.CORRUPTS, 0, 0);
    Cli run = perf("--ranks 2 --counts 8 -n 1 --check 0").assertOk();
    assertThat(run.rows().get(0).get(IN_PLACE_WRONG)).isEqualTo("N/A");
  }

  @Test
  void shouldMeasureOnlyThePlacementThatWasAskedFor() {
    Cli run = perf("--ranks 2 --counts 4 -n 1 --placement in");
    assertThat(run.rows().get(0).get(OUT_OF_PLACE_WRONG)).isEqualTo("N/A");
    assertThat(run.rows().get(0).get(IN_PLACE_WRONG)).isEqualTo("0");
  }

  @Test
  void shouldPrintAndWriteThePeersTimesAndTheRatioWhenCompared() throws IOException {
    backend.compare();
    Cli run = perf("--ranks 2 --counts 4 -n 1 --json " + json());
    assertThat(run.out()).contains("# peer: Idle 1.0");
    assertThat(run.out()).contains(" Idle 1.0\n");
    assertThat(run.rows().get(0)).hasSize(17);
    Row row = parse(json()).get(0);
    double ratio = number(row, "time_us") / number(row, "peer_time_us");
    assertThat(number(row, "ratio")).isEqualTo(ratio).isPositive();
  }

  @Test
  void shouldDrawBothSidesOverSize() throws Exception {
    backend.compare();
    perf("--ranks 2 -b 8 -e 32 -n 1 -d half,float --json " + json()).assertOk();
    Path file = folder.resolve("rows.svg");
    Process plot =
        new ProcessBuilder("benchmarks/plot.py", json().toString())
            .redirectOutput(file.toFile())
            .redirectError(ProcessBuilder.Redirect.INHERIT)
            .start();
    assertThat(plot.waitFor()).isZero();
    Document svg = DocumentBuilderFactory.newInstance().newDocumentBuilder().parse(file.toFile());
    assertThat(svg.getDocumentElement().getTagName()).isEqualTo("svg");
    NodeList lines = svg.getElementsByTagName("polyline");
    List<String> series = new ArrayList<>();
    for (int i = 0; i < lines.getLength(); i++) {
      Element line = (Element) lines.item(i);
      series.add(line.getAttribute("data-series"));
      assertThat(line.getAttribute("points").split(" ")).hasSize(3);
    }
    assertThat(series)
        .hasSize(8) // times, then bandwidths
        .startsWith("FluxCCL half sum", "Idle 1.0 half sum", "FluxCCL float sum")
        .endsWith("Idle 1.0 float sum");
    assertThat(Files.readString(file)).contains("prefers-color-scheme: dark");
  }

  @Test
  void shouldPrintProgressOnStderrIfRequested() {
    List<String> lines = perf("--ranks 2 --counts 4,8 -n 1 --progress").err().lines().toList();
    assertThat(lines).hasSize(3);
    assertThat(lines.get(2)).startsWith("progress: 2 of 2: all-reduce, 32 bytes");
  }

  @Test
  void shouldWriteTheFastestAlgorithmsToATuningFile() {
    Path file = folder.resolve("tuning");
    Cli run = perf("--ranks 2 -b 8 -e 16 -n 1 --tune " + file).assertOk();
    assertThat(run.rows()).hasSize(8).allSatisfy(row -> assertThat(row.get(3)).isEqualTo("exact"));
    assertThat(Tuning.read(file).rules())
        .extracting(Tuning.Rule::types, Tuning.Rule::upToBytes, Tuning.Rule::algorithm)
        .containsExactlyInAnyOrder(
            tuple(Tuning.TypeClass.HALF, 16L, "exact"),
            tuple(Tuning.TypeClass.FLOAT, 16L, "exact"),
            tuple(Tuning.TypeClass.FP8, 16L, "exact"),
            tuple(Tuning.TypeClass.INTEGER, 16L, "exact"));
  }

  @Test
  void shouldTuneAllCollectivesAndKeepRulesOfOtherJobs() throws IOException {
    String other = "all-reduce.cuda.8.1.registered.half=65536 somehow";
    String note = "note=of the large machine";
    String before = "fluxccl-tuning=2\n" + note + "\n" + other + "\n";
    Path file = Files.writeString(folder.resolve("tuning"), before);
    String options = " --in-process --ranks 2 -b 16 -e 16 -n 1 -d float --jit-warmup 0";
    Cli run = Cli.run(backend, ("perf --tune " + file + options).split(" "));
    assertThat(run.err()).isEmpty();
    assertThat(Tuning.read(file).rules())
        .extracting(Tuning.Rule::collective)
        .hasSize(1 + Collective.plain().size())
        .containsAll(Collective.plain());
    assertThat(Files.readAllLines(file)).contains(note, other);
  }

  @Test
  @Tag("long")
  void shouldRefuseToOverwriteAFileThatIsNoTuningFile() throws IOException {
    Path file = Files.writeString(folder.resolve("precious"), "a letter\n");
    perf("--ranks 2 --counts 4 --tune " + file)
        .assertFails(ExitCode.USAGE, "is no tuning file", "fluxccl-tuning=2");
    assertThat(file).hasContent("a letter");
  }

  @ParameterizedTest
  @CsvSource({"tune, missing/tuning", "tune, .", "json, missing/rows.json"})
  void shouldRefuseAtOnceWhenAFileCannotBeWritten(String option, String file) {
    Cli run = perf("--ranks 2 --counts 4 --" + option + " " + folder.resolve(file));
    run.assertFails(ExitCode.USAGE, option + "=", "can't be written");
    assertThat(run.out()).isEmpty();
  }

  @Test
  void shouldCheckEveryTypeAndOperationWhenAllAreAskedFor() {
    Cli run = perf("--ranks 2 --counts 5 -d all -o all -n 1 -w 0").assertOk();
    assertThat(run.rows())
        .hasSize(60)
        .allSatisfy(row -> assertThat(row.get(IN_PLACE_WRONG)).isEqualTo("0"));
  }

  @Test
  void shouldMeasureLongEnoughWhenIterationsAreLeftOpen() {
    assertThat(perf("--ranks 1 --counts 1 -d int32 --jit-warmup 0.05").assertOk().out())
        .contains("iters: 20 or more, for at least 20 ms, median of 3 rounds", "for 0.1 s");
  }

  @Test
  void shouldNotCountAPauseWhenIterationsAreLeftOpen() {
    // After 1 and 20 calls to warm up, among the first 20 that are timed: 5000 us for each of them.
    backend.setFault(Fault.PAUSES, 0, 30);
    Cli run = perf("--ranks 1 -b 8 -e 8 --placement out").assertOk();
    assertThat(run.rows()).hasSize(1);
    assertThat(Double.parseDouble(run.rows().get(0).get(OUT_OF_PLACE_TIME))).isEqualTo(10);
  }

  @Test
  void shouldNameRankAndCauseWhenARankFails() {
    backend.setFault(Fault.FAILS, 1, 3);
    Cli run = perf("--ranks 3 --counts 8 -n 10");
    run.assertFails(ExitCode.FAILURE, "rank 1", "(--verbose shows where)");
    assertThat(run.err().lines()).hasSize(1);
    assertThat(backend.openRanks()).isZero();
  }

  @Test
  void shouldShowTheStackTraceWhenVerbose() {
    backend.setFault(Fault.FAILS, 0, 0);
    Cli run = perf("--ranks 1 --counts 8 --verbose");
    assertThat(run.err()).contains("the fake cable was cut", "at io.fluxccl.cli.");
  }

  @ParameterizedTest
  @CsvSource({"0, --timeout", "1, did not complete on rank 0 within 0.200 s"})
  void shouldEndByItsTimeoutWhenARankNeverCompletes(int warmUp, String message) {
    backend.setFault(Fault.HANGS, 0);
    perf("--ranks 1 --counts 8 --timeout 0.2 --jit-warmup " + warmUp)
        .assertFails(ExitCode.FAILURE, "timeout", "rank 0", message);
    assertThat(backend.openRanks()).isZero();
  }

  private Path json() {
    return folder.resolve("rows.json");
  }

  /** Sizes and bandwidths are counted as nccl-tests count them. */
  @ParameterizedTest
  @CsvSource({"all-reduce, --counts 3, 12, 3, 1.5", "all-gather, -b 64 -e 64, 64, 4, 0.75"})
  void shouldWriteItsRowsAsJson(
      String collective, String sizes, long bytes, long count, double factor) throws IOException {
    perfOf(collective, "--ranks 4 -n 1 --json " + json() + " " + sizes).assertOk();
    assertThat(parse(json())).hasSize(1);
    Row row = parse(json()).get(0);
    String op = collective.equals("all-reduce") ? "sum" : "none";
    assertThat(Stream.of("op", "bytes", "count", "dtype", "redop", "wrong").map(row::text))
        .containsExactly(collective, "" + bytes, "" + count, "float", op, "0");
    assertThat(number(row, "time_us")).isPositive();
    assertThat(number(row, "busbw_gbs")).isEqualTo(number(row, "algbw_gbs") * factor);
    assertThat(folder).isDirectoryNotContaining("glob:**/.rows*");
  }

  @Test
  void shouldKeepTheRowsSoFarAsValidJsonWhenTheRunFailsMidway() throws IOException {
    backend.setFault(Fault.FAILS, 0, 5);
    Files.writeString(json(), "rows of another run");
    Cli run = perf("--ranks 2 --counts 1,2,3 -n 1 -w 0 --json " + json());
    assertThat(run.code()).isEqualTo(ExitCode.FAILURE);
    assertThat(parse(json())).extracting(row -> row.text("count")).containsExactly("1");
  }

  /** Returns the rows of a JSON file. */
  @SuppressWarnings("unchecked")
  static List<Row> parse(Path file) throws IOException {
    String text = Files.readString(file);
    assertThat(text.strip()).endsWith("]");
    return ((List<Map<String, Object>>) Row.read(text)).stream().map(Row::new).toList();
  }

  private static double number(Row row, String name) {
    return row.number(name).orElseThrow().doubleValue();
  }
}
