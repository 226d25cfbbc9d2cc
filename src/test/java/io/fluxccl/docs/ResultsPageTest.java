// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.docs;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatCode;

import io.fluxccl.Text;
import io.fluxccl.benchmarks.Results;
import io.fluxccl.benchmarks.Row;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Set;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** The pages with figures are those that the rows of {@code benchmarks/data} make. */
class ResultsPageTest {
  private static final int MOST_BYTES = 10 * 1024;
  private static final Path ROOT = Path.of("");
  private static final Set<String> FIELDS =
      Set.of(
          "id", "kind", "what", "series", "at", "ours", "peer", "ratio", "unit", "against", "goal",
          "cited", "samples", "machine", "commit", "date", "command", "note");

  @Test
  void shouldMatchTheGeneratedText() throws IOException {
    String remedy = "run ./fluxccl bench --write-results";
    Results results = Results.of(ROOT);

    assertThat(ROOT.resolve("benchmarks/RESULTS.md")).as(remedy).hasContent(results.page());
    assertThat(ROOT.resolve("README.md")).as(remedy).hasContent(results.readme());
  }

  @Test
  void shouldBeShort() throws IOException {
    byte[] page = Results.of(ROOT).page().getBytes(StandardCharsets.UTF_8);

    assertThat(page.length).as("bytes of benchmarks/RESULTS.md").isLessThanOrEqualTo(MOST_BYTES);
  }

  @Test
  void shouldShowTheNewestRowOfAnIdUnderTheGoalOfTheOlderOne(@TempDir Path root)
      throws IOException {
    Path data = Files.createDirectories(root.resolve("benchmarks/data"));
    String row = "{\"id\":\"a/b\",\"what\":\"push\",\"ours\":%s,\"unit\":\"us\",\"date\":\"%s\"%s}";
    String goal = ",\"goal\":\"ours <= 3\"";
    Files.write(
        data.resolve("gpu.jsonl"),
        List.of(
            Text.of(row, "2", "2026-01-02", ""),
            Text.of(row, "4", "2026-01-01", goal),
            Text.of(row, "5", "2026-01-03", "")));

    assertThat(Results.of(root).page())
        .contains("| push | 5 us | ours <= 3: missed | A, 2026-01-03 |")
        .doesNotContain("| push | 2", "| push | 4");
  }

  @Test
  void shouldGiveMachineDateAndCommandInEachRow() throws IOException {
    List<Row> rows = Results.of(ROOT).rows().values().stream().flatMap(List::stream).toList();

    assertThat(rows).hasSizeGreaterThan(800).allSatisfy(ResultsPageTest::check);
  }

  private static void check(Row row) {
    assertThat(row.fields().keySet()).as(row.toJson()).isSubsetOf(FIELDS).contains("id", "what");
    if (row.isNote()) {
      assertThat(row.text("note")).as(row.toJson()).isNotEmpty();
      return;
    }
    assertThat(row.text("ours")).as(row.toJson()).isNotEmpty();
    assertThat(row.text("date")).as(row.toJson()).matches("2\\d{3}-\\d\\d-\\d\\d");
    assertThat(row.text("goal")).as(row.toJson()).matches("|(ours|ratio) [<>]= [\\d.]+");
    assertThatCode(row::isReached).as(row.toJson()).doesNotThrowAnyException();
    String cited = row.text("cited");
    assertThat(cited.isEmpty() || Files.exists(ROOT.resolve(cited))).as(row.toJson()).isTrue();
  }
}
