// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.InvalidUsage;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Variables of several launchers at once, and the node lists of Slurm. */
class LauncherPlaceTest {
  private static final Map<String, String> OPEN_MPI = place("OMPI_COMM_WORLD_", 0, 4);
  private static final Map<String, String> TORCHRUN =
      Map.of(
          "RANK", "1", "WORLD_SIZE", "2", "MASTER_ADDR", "node1.example", "MASTER_PORT", "29400");

  /** Variables that are set in a batch script, too. */
  private static final Map<String, String> SCRIPT = Map.of("SLURM_NTASKS", "8");

  private static Map<String, String> place(String prefix, int rank, int size) {
    return Map.of(prefix + "RANK", "" + rank, prefix + "SIZE", "" + size);
  }

  /** The variables of a task of a step of Slurm. */
  private static Map<String, String> slurm(int rank, int tasks, int nodes) {
    return Map.of(
        "SLURM_PROCID",
        "" + rank,
        "SLURM_STEP_NUM_TASKS",
        "" + tasks,
        "SLURM_STEP_NUM_NODES",
        "" + nodes,
        "SLURM_JOB_ID",
        "42",
        "SLURM_STEP_ID",
        "0",
        "SLURM_STEP_NODELIST",
        "n[1-2]");
  }

  @SafeVarargs
  private static RankEnvironment read(Map<String, String>... launchers) {
    Map<String, String> all = new HashMap<>();
    for (Map<String, String> each : launchers) {
      all.putAll(each);
    }
    return RankEnvironment.from(all);
  }

  @Test
  void shouldRefuseMpiVariablesThatContradictTorchrun() {
    assertThatThrownBy(() -> read(OPEN_MPI, TORCHRUN))
        .isInstanceOf(InvalidUsage.class)
        .hasMessage(
            "OMPI_COMM_WORLD_RANK=0 of OMPI_COMM_WORLD_SIZE=4 (Open MPI) contradicts RANK=1 of"
                + " WORLD_SIZE=2 (torchrun): unset OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE if"
                + " torchrun started this process, RANK and WORLD_SIZE if Open MPI did");
    assertThatThrownBy(() -> read(place("PMI_", 1, 3), TORCHRUN))
        .isInstanceOf(InvalidUsage.class)
        .hasMessageContaining("PMI_RANK=1 of PMI_SIZE=3 (PMI) contradicts RANK=1 of WORLD_SIZE=2");
  }

  @Test
  void shouldRefuseMpiVariablesThatContradictASlurmStep() {
    assertThatThrownBy(() -> read(OPEN_MPI, slurm(1, 4, 2)))
        .isInstanceOf(InvalidUsage.class)
        .hasMessageContaining(
            "OMPI_COMM_WORLD_RANK=0 of OMPI_COMM_WORLD_SIZE=4 (Open MPI) contradicts SLURM_PROCID=1"
                + " of SLURM_STEP_NUM_TASKS=4 (Slurm): unset OMPI_COMM_WORLD_RANK and")
        .hasMessageEndingWith("SLURM_PROCID and SLURM_STEP_NUM_TASKS if Open MPI did");
    // One task on each node, but too few ranks for these.
    assertThatThrownBy(() -> read(place("OMPI_COMM_WORLD_", 0, 1), slurm(1, 2, 2)))
        .isInstanceOf(InvalidUsage.class)
        .hasMessageContaining("OMPI_COMM_WORLD_SIZE=1");
  }

  @Test
  void shouldRefuseTorchrunVariablesThatContradictAPod() {
    Map<String, String> pod = Map.of("JOB_COMPLETION_INDEX", "1", "FLUXCCL_NRANKS", "3");
    assertThatThrownBy(() -> read(pod, TORCHRUN))
        .isInstanceOf(InvalidUsage.class)
        .hasMessageStartingWith("JOB_COMPLETION_INDEX=1 of FLUXCCL_NRANKS=3 (Kubernetes)")
        .hasMessageContaining("RANK=1 of WORLD_SIZE=2 (torchrun)");
  }

  @Test
  void shouldRefuseInvalidVariablesOfASecondLauncher() {
    assertThatThrownBy(() -> read(OPEN_MPI, place("PMI_", 4, 4)))
        .isInstanceOf(InvalidUsage.class)
        .hasMessage("PMI_RANK=4: give 0 to 3");
  }

  @Test
  void shouldReadTheFirstLauncherIfAllAgree() {
    RankEnvironment read =
        read(OPEN_MPI, place("PMI_", 0, 4), Map.of("RANK", "0", "WORLD_SIZE", "4"), slurm(0, 4, 1));
    assertThat(read.launcher()).isEqualTo("Open MPI");
    assertThat(read.rank()).isZero();
  }

  @Test
  void shouldReadLaunchersThatASlurmStepStartsOnEachNode() {
    RankEnvironment torchrun = read(TORCHRUN, slurm(0, 1, 1));
    assertThat(torchrun.launcher()).isEqualTo("torchrun");
    assertThat(torchrun.rank()).isEqualTo(1);
    RankEnvironment hydra = read(place("PMI_", 6, 16), slurm(1, 2, 2));
    assertThat(hydra.launcher()).isEqualTo("PMI");
    assertThat(hydra.rank()).isEqualTo(6);
  }

  @Test
  void shouldPreferItsOwnVariablesToLaunchersThatDisagree() {
    Map<String, String> own = Map.of("FLUXCCL_RANK", "2", "FLUXCCL_NRANKS", "3");
    assertThat(read(own, OPEN_MPI, TORCHRUN).rank()).isEqualTo(2);
  }

  @ParameterizedTest
  @CsvSource({"SLURM_HET_SIZE, 2", "SLURM_HET_GROUP_0, 1"})
  void shouldRefuseAHeterogeneousStepOfSlurm(String name, String value) {
    for (Map<String, String> more : List.of(OPEN_MPI, place("PMI_", 5, 8), TORCHRUN, SCRIPT)) {
      assertThatThrownBy(() -> read(slurm(1, 4, 2), more, Map.of(name, value)))
          .isInstanceOf(InvalidUsage.class)
          .hasMessageStartingWith(
              name + "=" + value + ": heterogeneous steps of Slurm are not supported")
          .hasMessageContaining("set FLUXCCL_RANK, FLUXCCL_NRANKS and FLUXCCL_ADDR")
          .hasMessageEndingWith("unset " + name);
    }
  }

  @Test
  void shouldReadAStepOfSlurmWithASingleComponent() {
    assertThat(read(slurm(1, 4, 2), Map.of("SLURM_HET_SIZE", "1")).rank()).isEqualTo(1);
    // The batch script is not a rank.
    Map<String, String> script = Map.of("SLURM_PROCID", "0", "SLURM_HET_SIZE", "2");
    assertThat(read(script).launched()).isFalse();
    Map<String, String> own = Map.of("FLUXCCL_RANK", "2", "FLUXCCL_NRANKS", "3");
    assertThat(read(own, slurm(1, 4, 2), Map.of("SLURM_HET_SIZE", "2")).rank()).isEqualTo(2);
  }

  @ParameterizedTest
  @CsvSource(
      delimiter = ' ',
      value = {
        "linux[1,2] linux1",
        "alpha,beta alpha",
        "a,b[001,003],c a",
        "n[009-010]-ib n009-ib",
        "rack[1-2]node[01-04] rack1node01",
        "a[1-3,7]b[01-02]c a1b01c",
        "r[0-1]n[0-3]-ib0,x r0n0-ib0",
        "a[1-2][3-4] a13",
        "n[1-2],m[3-4] n1",
        "h-[001-002] h-001",
        "h-3-1,x h-3-1",
        "tux[1-2,5].x.org tux1.x.org",
        "n[00000000001-00000000002] n00000000001"
      })
  void shouldUseTheFirstHostOfASlurmNodeList(String list, String host) {
    RankEnvironment read = read(slurm(0, 4, 2), Map.of("SLURM_STEP_NODELIST", list));
    assertThat(RootAddress.parse(read.address().get()).host()).isEqualTo(host);
  }

  @ParameterizedTest
  @ValueSource(
      strings = {
        "[[",
        "n[",
        "n[1",
        "n[1-",
        "n[1-2",
        "n1]",
        "n[]",
        "n[a]",
        "n[1-a]",
        "n[-1]",
        "n[1,]",
        "n[,1]",
        "n[1-2-3]",
        "n[2-1]",
        "a[1-2]b[4-3]",
        "n[[1]]",
        "a,,b",
        ",a",
        "a,",
        "a b",
        "a;b",
        "n[١-٢]",
        "a,n[",
        "n[12345678901234567890]"
      })
  void shouldQuoteAListOfSlurmThatIsMalformed(String list) {
    assertThatThrownBy(() -> read(slurm(0, 4, 2), Map.of("SLURM_STEP_NODELIST", list)))
        .isInstanceOf(InvalidUsage.class)
        .hasMessageStartingWith("SLURM_STEP_NODELIST=" + list + " is no list of hosts")
        .hasMessageContaining("set FLUXCCL_ADDR=ip:port");
  }

  @Test
  void shouldRefuseAListThatIsTooLongWithoutOverflowingTheStack() {
    for (String part : new String[] {"[1]", "a,", "n[1,"}) {
      for (int times : new int[] {1_300, 100_000}) {
        String list = part.repeat(times) + "[";
        assertThatThrownBy(() -> read(slurm(0, 4, 2), Map.of("SLURM_STEP_NODELIST", list)))
            .isInstanceOf(InvalidUsage.class);
      }
    }
  }

  @Test
  void shouldWriteAsciiDigitsInEachLocale() {
    Locale before = Locale.getDefault();
    try {
      Locale.setDefault(Locale.forLanguageTag("ar-EG-u-nu-arab"));
      Map<String, String> pod =
          Map.of("JOB_COMPLETION_INDEX", "1", "FLUXCCL_NRANKS", "2", "HOSTNAME", "train-1");
      assertThat(read(pod).address()).hasValue("train-0.train:29500");
      assertThat(read(slurm(0, 4, 2)).address().get()).matches("n1:2[0-9]{4}");
      assertThat(read(slurm(0, 4, 1)).address().get()).matches("127\\.0\\.0\\.1:2[0-9]{4}");
    } finally {
      Locale.setDefault(before);
    }
  }
}
