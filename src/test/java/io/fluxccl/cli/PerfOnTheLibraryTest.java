// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.collective.Collective;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;

@Timeout(60)
class PerfOnTheLibraryTest {
  private static final String SHORT = "--counts 5 -n 1 -w 0 --jit-warmup 0";

  private static Cli perf(Map<String, String> environment, String line) {
    return Cli.run(new GroupBackend(), environment, ("perf " + line).split(" "));
  }

  @ParameterizedTest
  @CsvSource({
    "OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE",
    "PMI_RANK, PMI_SIZE",
    "RANK, WORLD_SIZE",
    "SLURM_PROCID, SLURM_STEP_NUM_TASKS"
  })
  void shouldRunAsARankIfVariablesOfALauncherAreSet(String rank, String size) {
    Cli run = perf(Map.of(rank, "0", size, "1"), "all-reduce " + SHORT).assertOk();
    assertThat(run.rows()).hasSize(1);
  }

  @Test
  void shouldReportTheCauseOfAFailedFutureIfSetUpIsRefused() {
    String options = " --in-process --ranks 2 --transport IB7";
    Cli run = perf(Map.of(), "all-reduce " + SHORT + options);
    assertThat(run.err())
        // Either rank may be the first to refuse; the other rank's error then names it.
        .matches(
            "fluxccl perf all-reduce: invalid usage: (rank [01]: )?connectOnDemand"
                + "\\(rank=[01], tag=\\d+, IB7\\): transport IB7 is not available: .+\\R");
    assertThat(run.code()).isEqualTo(ExitCode.USAGE);
  }

  @ParameterizedTest
  @EnumSource(Collective.class)
  void shouldFindNothingWrongInAnyCollective(Collective collective) {
    String root = collective.hasRoot() ? "1" : "0";
    boolean takesAnyType = Collective.plain().contains(collective);
    String options =
        " --in-process --ranks 3 --device host --root "
            + root
            + (takesAnyType ? " -d float,half,int64,f8e5m2" : "");
    String line = collective.label() + " " + SHORT.replace("5", "5,3000") + options;
    assertThat(perf(Map.of(), line).assertOk().out()).contains("# Out of bounds values : 0 OK");
  }
}
