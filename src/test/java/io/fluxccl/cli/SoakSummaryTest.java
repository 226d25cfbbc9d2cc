// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.cli.LineForwarder.Sink.End;
import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class SoakSummaryTest {
  private final ByteArrayOutputStream printed = new ByteArrayOutputStream();
  private final SoakSummary tally =
      new SoakSummary(new PrintStream(printed, true, StandardCharsets.UTF_8));

  /** Passes lines that begin with the rank that prints them. */
  private void lines(String... all) {
    for (String each : all) {
      line(each.charAt(0) - '0', each.substring(2), End.LINE);
    }
  }

  private void line(int rank, String text, End end) {
    tally.line(rank, false, text.getBytes(StandardCharsets.UTF_8), end);
  }

  @Test
  void shouldAddUpTheReportsOfRanksAndGenerations() {
    lines(
        "0 soak ready 1 0 2 0",
        "1 soak ready 1 1 2 0",
        "0 soak count 1 0 90 0",
        "1 soak count 1 1 100 2",
        "1 soak count 1 1 110 3",
        "0 soak leak 1 0 3 -1",
        "0 soak cancel 1 0 30 0",
        "1 soak cancel 1 1 33 0",
        "1 soak memory 1 1 -5 64");
    tally.restarted(1);
    tally.killedTwo();
    lines("0 soak ready 2 0 2 0", "1 soak ready 2 1 2 0");
    lines("1 soak count 2 1 7 0", "1 soak cancel 2 1 2 0");
    SoakSummary.Result result = tally.result();
    assertThat(result.collectives()).isEqualTo(117);
    assertThat(result.wrong()).isEqualTo(3);
    assertThat(result.generations()).isEqualTo(2);
    assertThat(result.deaths()).isEqualTo(1);
    assertThat(result.doubleKills()).isEqualTo(1);
    assertThat(result.cancelled()).isEqualTo(35);
    assertThat(result.leaks())
        .containsAllEntriesOf(
            Map.of("threads", 3L, "descriptors", 0L, "heap_kib", 0L, "rss_kib", 64L));
  }

  @Test
  void shouldForgetNothingWhenGenerationsAreCountedAnew() {
    lines("0 soak ready 1 0 1 0", "0 soak count 1 0 90 4");
    tally.restarted(0);
    lines("0 soak ready 1 0 1 0", "0 soak count 1 0 20 1");
    SoakSummary.Result result = tally.result();
    assertThat(result.collectives()).isEqualTo(110);
    assertThat(result.wrong()).isEqualTo(5);
    assertThat(result.generations()).isEqualTo(2);
  }

  @Test
  void shouldReportLeaksAndWrongElements() {
    lines(
        "0 soak ready 1 0 2 0",
        "0 soak leak 1 0 16 5",
        "0 soak memory 1 0 900000 900000",
        "0 soak count 1 0 90 0");
    assertThat(tally.result().fault(2)).isEmpty();
    lines("0 soak leak 1 0 17 16");
    tally.segmentsLeft(1);
    assertThat(tally.result().fault(2)).hasValue("leaked: segments 1, threads 17");
    assertThat(tally.result().fault(4)).hasValue("leaked: segments 1");
    lines("0 soak count 1 0 90 4");
    assertThat(tally.result().fault(4)).hasValue("4 elements were wrong");
  }

  @Test
  void shouldFindAFaultIfNothingWasCounted() {
    lines("0 soak ready 1 0 1 0");
    assertThat(tally.result().fault(1))
        .hasValueSatisfying(fault -> assertThat(fault).contains("no collective was counted"));
  }

  @ParameterizedTest
  @ValueSource(
      strings = {
        "soak ",
        "soak count",
        "soak count 1 0 12",
        "soak count 1 0 x 4",
        "soak count 1 0 99999999999999999999 0",
        "soak count 1 0 5 5 5",
        "soak other 1 0 5 5"
      })
  void shouldIgnoreALineThatIsNoReport(String text) {
    line(0, text, End.LINE);
    assertThat(tally.result().collectives()).isZero();
    assertThat(tally.result().wrong()).isZero();
  }

  @Test
  void shouldIgnoreALineThatIsCut() {
    line(0, "soak count 1 0 12 3", End.STREAM);
    assertThat(tally.result().wrong()).isZero();
  }

  @Test
  void shouldForwardAllElse() {
    lines("1 hello");
    assertThat(printed.toString(StandardCharsets.UTF_8)).isEqualTo("[1] hello\n");
  }
}
