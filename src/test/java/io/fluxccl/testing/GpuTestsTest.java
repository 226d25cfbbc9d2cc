// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.testing;

import static org.assertj.core.api.Assertions.assertThat;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.locks.LockSupport;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Disabled;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;
import picocli.CommandLine;

@Tag("multiprocess")
class GpuTestsTest {
  @TempDir Path reports;

  /** Each test ends in another way. */
  @Tag("fixture")
  static class Mixed {
    @ParameterizedTest
    @ValueSource(ints = {1, 2})
    void passes(int number) {
      assertThat(number).isPositive();
    }

    @Test
    void fails() {
      throw new IllegalStateException("first line\nsecond line");
    }

    @Test
    @Disabled("no time")
    void disabled() {}

    @Test
    void assumes() {
      assumeTrue(false, "wrong machine");
    }
  }

  @Tag("fixture")
  static class Hanging {
    @Test
    void endsBefore() {}

    @Test
    @Timeout(value = 1, unit = java.util.concurrent.TimeUnit.HOURS)
    void hangs() {
      while (true) {
        LockSupport.park();
      }
    }
  }

  @Tag("fixture")
  static class Ending {
    @Test
    void ends() {
      Runtime.getRuntime().halt(3);
    }
  }

  @Tag("fixture")
  @RequiresGpus(4096)
  static class Impossible {
    @Test
    void one() {}

    @Test
    void two() {}
  }

  @Tag("fixture")
  static class Broken {
    @BeforeAll
    static void fails() {
      throw new IllegalStateException("before all");
    }

    @Test
    void neverRuns() {}
  }

  /** Of no tag: it is in no list of classes. */
  static class Untagged {}

  private String run(int exitCode, String fixture, String... options) {
    StringWriter out = new StringWriter();
    List<String> args = new ArrayList<>(List.of(options));
    args.addAll(List.of("--tag", "fixture", "--reports", reports.toString()));
    args.add(GpuTestsTest.class.getName() + "$" + fixture);
    int code =
        new CommandLine(new GpuTests())
            .setOut(new PrintWriter(out, true))
            .setErr(new PrintWriter(out, true))
            .execute(args.toArray(new String[0]));
    assertThat(code).as(out.toString()).isEqualTo(exitCode);
    return out.toString();
  }

  @Test
  void shouldCountAndExplainEachOutcome() throws Exception {
    String out = run(1, "Mixed");
    assertThat(out)
        .contains("2 passed   1 failed   2 skipped")
        .contains("FAILED  fails(): java.lang.IllegalStateException: first line")
        .contains("            second line")
        .contains("wrong machine")
        .contains("skipped 1: ")
        .contains("no time")
        .endsWith("2 passed, 1 failed, 2 skipped\n");
    assertThat(Files.readString(reports.resolve("summary.txt"))).contains("2 passed, 1 failed");
    assertThat(reports.resolve("xml").resolve(Mixed.class.getName()))
        .isDirectoryContaining("glob:**.xml");
    assertThat(Files.readString(reports.resolve(Mixed.class.getName() + ".log")))
        .contains("at io.fluxccl.testing.GpuTestsTest$Mixed.fails");
  }

  @Test
  void shouldNameTheTestThatEndedTheProcess() {
    assertThat(run(1, "Ending"))
        .contains("FAILED  ends(): not finished: the process ended with exit code 3")
        .endsWith("0 passed, 1 failed, 0 skipped\n");
  }

  @ParameterizedTest
  @CsvSource(
      delimiter = '|',
      value = {
        "Hanging | --limit=6 | 1 1 0 | FAILED  hangs(): not finished: stopped after 6 s",
        "Impossible | --limit=60 | 0 0 2 | skipped 2: needs 4096 GPUs, there are",
        "Broken | --limit=60 | 0 1 0 | before all",
        "Mixed | --budget=0 | 0 1 0 | not started: the budget is spent",
        // A class that only the class path has.
        "Untagged | --limit=60 | 0 1 0 | FAILED  (the class): has no test that was run"
      })
  @Tag("long")
  void shouldExplainHowAClassEnds(String fixture, String option, String counts, String reason)
      throws Exception {
    Object[] each = counts.split(" ");
    assertThat(run(each[1].equals("0") ? 0 : 1, fixture, option))
        .contains(reason)
        .endsWith("%s passed, %s failed, %s skipped\n".formatted(each));
    if (fixture.equals("Hanging")) {
      assertThat(Files.readString(reports.resolve(Hanging.class.getName() + ".log")))
          .contains("GpuTestsTest$Hanging.hangs");
    }
  }

  @Test
  @Tag("long")
  void shouldRefuseANameThatMatchesNothing() {
    assertThat(run(2, "NoSuchClass"))
        .contains("no class matches io.fluxccl.testing.GpuTestsTest$No");
  }
}
