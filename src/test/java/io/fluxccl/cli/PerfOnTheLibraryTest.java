// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.collective.Collective;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;

@Timeout(60)
class PerfOnTheLibraryTest {
  private static final String[] SHORT = {
    "perf", "all-reduce", "--counts", "5", "-n", "1", "-w", "0", "--jit-warmup", "0"
  };

  @ParameterizedTest
  @CsvSource({
    "OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE",
    "PMI_RANK, PMI_SIZE",
    "RANK, WORLD_SIZE",
    "SLURM_PROCID, SLURM_STEP_NUM_TASKS"
  })
  void shouldRunAsARankIfVariablesOfALauncherAreSet(String rank, String size) {
    Cli run = Cli.run(new GroupBackend(), Map.of(rank, "0", size, "1"), SHORT);

    assertThat(run.err()).isEmpty();
    assertThat(run.code()).isZero();
    assertThat(run.rows()).hasSize(1);
  }

  @Test
  void shouldReportTheCauseOfAFailedFutureIfSetUpIsRefused() {
    List<String> args = new ArrayList<>(List.of(SHORT));
    args.addAll(List.of("--in-process", "--ranks", "2", "--transport", "IB7"));

    Cli run = Cli.run(new GroupBackend(), args.toArray(String[]::new));

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
    List<String> args = new ArrayList<>(List.of(SHORT));
    args.set(1, collective.label());
    args.addAll(List.of("--in-process", "--ranks", "3", "--device", "host"));
    args.addAll(List.of("--root", collective.hasRoot() ? "1" : "0"));
    args.set(args.indexOf("5"), "5,3000");

    Cli run = Cli.run(new GroupBackend(), args.toArray(String[]::new));

    assertThat(run.err()).isEmpty();
    assertThat(run.out()).contains("# Out of bounds values : 0 OK");
    assertThat(run.code()).isZero();
  }
}
