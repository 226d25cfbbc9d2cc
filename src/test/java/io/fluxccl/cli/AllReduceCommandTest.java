package io.fluxccl.cli;

import static org.assertj.core.api.Assertions.assertThat;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

@Timeout(60)
class AllReduceCommandTest {
  @TempDir private Path folder;

  private final FakeBackend backend = new FakeBackend();

  private Cli perf(String... options) {
    List<String> args = new ArrayList<>(List.of("perf", "all-reduce", "--in-process"));
    args.addAll(List.of(options));
    if (!args.contains("--jit-warmup")) {
      args.addAll(List.of("--jit-warmup", "0"));
    }
    return Cli.run(backend, args.toArray(String[]::new));
  }

  @Test
  void shouldPrintARowForEachSizeWhenResultsAreRight() {
    Cli run = perf("--ranks", "3", "-b", "8", "-e", "32", "-n", "2", "-w", "1");

    assertThat(run.err()).isEmpty();
    assertThat(run.code()).isZero();
    assertThat(run.rows()).extracting(row -> row.get(0)).containsExactly("8", "16", "32");
    assertThat(run.rows())
        .allSatisfy(
            row -> {
              assertThat(row).hasSize(8);
              assertThat(row.subList(2, 4)).containsExactly("float", "sum");
              assertThat(row.get(7)).isEqualTo("0");
            });
    assertThat(run.out())
        .contains("# nRanks 3 minBytes 8 maxBytes 32 step: 2(factor)")
        .contains("Rank  2 Pid")
        .contains("# Out of bounds values : 0 OK")
        .contains("# Avg bus bandwidth    : ");
    assertThat(backend.openRanks()).isZero();
  }

  @Test
  void shouldCheckEveryTypeAndOperationWhenAllAreAskedFor() {
    Cli run = perf("--ranks", "2", "--counts", "5", "-d", "all", "-o", "all", "-n", "1", "-w", "0");

    assertThat(run.code()).isZero();
    assertThat(run.rows()).hasSize(50).allSatisfy(row -> assertThat(row.get(7)).isEqualTo("0"));
  }

  @Test
  void shouldMeasureLongEnoughWhenIterationsAreLeftOpen() {
    Cli run = perf("--ranks", "2", "--counts", "1", "-d", "int32", "--jit-warmup", "0.05");

    assertThat(run.code()).isZero();
    assertThat(run.out()).contains("iters: 20 or more, for at least 20 ms").contains("for 0.1 s");
  }

  @Test
  void shouldCountWrongElementsOfAllRanksAndFailWhenAReductionIsWrong() {
    backend.corrupting(1, 0, 2, 7);

    Cli run = perf("--ranks", "2", "--counts", "8", "-n", "1", "-d", "half,double");

    assertThat(run.code()).isEqualTo(ExitCode.FAILURE);
    assertThat(run.rows()).extracting(row -> row.get(7)).containsExactly("3", "3");
    assertThat(run.out()).contains("# Out of bounds values : 6 FAILED");
  }

  @Test
  void shouldFailWhenAReductionWritesPastItsEnd() {
    backend.overrunning();

    Cli run = perf("--ranks", "2", "--counts", "8", "-n", "1");

    assertThat(run.code()).isEqualTo(ExitCode.FAILURE);
    assertThat(run.rows().get(0).get(7)).isEqualTo("2");
  }

  @Test
  void shouldSayNotAvailableWhenNothingIsChecked() {
    backend.corrupting(0, 0);

    Cli run = perf("--ranks", "2", "--counts", "8", "-n", "1", "--check", "0");

    assertThat(run.code()).isZero();
    assertThat(run.rows().get(0).get(7)).isEqualTo("N/A");
  }

  @Test
  void shouldNameRankAndCauseWhenARankFails() {
    backend.failing(1, 3);

    Cli run = perf("--ranks", "3", "--counts", "8", "-n", "10");

    assertThat(run.code()).isEqualTo(ExitCode.FAILURE);
    assertThat(run.err().lines()).hasSize(1);
    assertThat(run.err()).contains("rank 1").contains("(--verbose shows where)");
    assertThat(backend.openRanks()).isZero();
  }

  @Test
  void shouldShowTheStackTraceWhenVerbose() {
    backend.failing(0, 0);

    Cli run = perf("--ranks", "1", "--counts", "8", "--verbose");

    assertThat(run.err()).contains("the fake cable was cut").contains("at io.fluxccl.cli.");
  }

  @Test
  void shouldEndByItsTimeoutWhenARankNeverCompletes() {
    backend.hanging(0);

    Cli run = perf("--ranks", "1", "--counts", "8", "--timeout", "0.2");

    assertThat(run.code()).isEqualTo(ExitCode.FAILURE);
    assertThat(run.err()).contains("timeout").contains("rank 0").contains("--timeout");
    assertThat(backend.openRanks()).isZero();
  }

  @Test
  void shouldEndByItsTimeoutWhenARankNeverCompletesDuringTheWarmUp() {
    backend.hanging(0);

    Cli run = perf("--ranks", "1", "--counts", "8", "--timeout", "0.2", "--jit-warmup", "1");

    assertThat(run.code()).isEqualTo(ExitCode.FAILURE);
    assertThat(run.err()).contains("did not complete on rank 0 within 0.200 s");
  }

  @Test
  void shouldWriteItsRowsAsJson() throws IOException {
    Path file = folder.resolve("rows.json");

    Cli run = perf("--ranks", "4", "--counts", "2,3", "-n", "1", "--json", file.toString());

    assertThat(run.code()).isZero();
    List<Map<String, Object>> rows = parse(file);
    assertThat(rows).hasSize(2);
    assertThat(rows.get(1))
        .containsEntry("op", "all-reduce")
        .containsEntry("bytes", 12L)
        .containsEntry("count", 3L)
        .containsEntry("dtype", "float")
        .containsEntry("redop", "sum")
        .containsEntry("wrong", 0L)
        .containsKeys("time_us", "algbw_gbs", "busbw_gbs");
    double algorithm = (double) rows.get(1).get("algbw_gbs");
    assertThat((double) rows.get(1).get("time_us")).isPositive();
    assertThat((double) rows.get(1).get("busbw_gbs")).isEqualTo(algorithm * 1.5);
    assertThat(folder).isDirectoryNotContaining("glob:**/.rows*");
  }

  @Test
  void shouldKeepTheRowsSoFarAsValidJsonWhenTheRunFailsMidway() throws IOException {
    backend.failing(0, 3);
    Path file = folder.resolve("rows.json");
    Files.writeString(file, "rows of another run");

    Cli run =
        perf("--ranks", "2", "--counts", "1,2,3", "-n", "1", "-w", "0", "--json", file.toString());

    assertThat(run.code()).isEqualTo(ExitCode.FAILURE);
    assertThat(parse(file)).extracting(row -> row.get("count")).containsExactly(1L);
  }

  @Test
  void shouldRefuseAtOnceWhenTheJsonFileCannotBeWritten() {
    Cli run =
        perf("--ranks", "2", "--json", folder.resolve("missing").resolve("rows.json").toString());

    assertThat(run.code()).isEqualTo(ExitCode.USAGE);
    assertThat(run.err()).contains("json=").contains("can't be written");
    assertThat(run.out()).isEmpty();
  }

  static List<Map<String, Object>> parse(Path file) throws IOException {
    List<Map<String, Object>> rows = new ArrayList<>();
    try (JsonParser json = new JsonFactory().createParser(file.toFile())) {
      assertThat(json.nextToken()).isEqualTo(JsonToken.START_ARRAY);
      while (json.nextToken() == JsonToken.START_OBJECT) {
        Map<String, Object> row = new LinkedHashMap<>();
        while (json.nextToken() == JsonToken.FIELD_NAME) {
          String name = json.currentName();
          row.put(
              name,
              switch (json.nextToken()) {
                case VALUE_NUMBER_INT -> json.getLongValue();
                case VALUE_NUMBER_FLOAT -> json.getDoubleValue();
                case VALUE_STRING -> json.getText();
                default -> "null";
              });
        }
        rows.add(row);
      }
      assertThat(json.currentToken()).isEqualTo(JsonToken.END_ARRAY);
      assertThat(json.nextToken()).isNull();
    }
    return rows;
  }
}
