// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.DataType;
import io.fluxccl.ReduceOp;
import io.fluxccl.cli.PerfBackend.RankOptions;
import io.fluxccl.collective.Collective;
import io.fluxccl.collective.CollectivesOptions;
import io.fluxccl.group.DeviceChoice;
import io.fluxccl.group.JoinOptions;
import io.fluxccl.settings.Settings;
import io.fluxccl.transport.Transport;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import picocli.CommandLine;
import picocli.CommandLine.Model.CommandSpec;

class PerfOptionsTest {
  private static final List<Collective> ALL_REDUCE = List.of(Collective.ALL_REDUCE);

  private static PerfOptions parse(String line) {
    PerfOptions options = new PerfOptions();
    CommandSpec spec =
        CommandSpec.create().addMixin("perf", CommandSpec.forAnnotatedObject(options));
    new CommandLine(spec).parseArgs(line.isEmpty() ? new String[0] : line.split(" "));
    return options;
  }

  private static PerfPlan plan(String line) {
    return parse(line).plan(ALL_REDUCE, 2);
  }

  private static RankOptions ranks(String line) {
    return parse(line).rankOptions(ALL_REDUCE);
  }

  private static JoinOptions joining(String line) {
    return ranks(line).joining().apply(JoinOptions.of(0, 1));
  }

  private static JoinOptions joining(DeviceChoice device, Duration limit) {
    return JoinOptions.of(0, 1).withDevice(device).withJoinTimeout(limit).withTimeout(limit);
  }

  @Test
  void shouldMeasureFloatSumsFrom1KTo16MWhenNothingIsSaid() {
    PerfPlan plan = plan("--ranks 2");

    assertThat(plan.cases()).hasSize(15);
    assertThat(plan.cases().get(0).bytes(2)).isEqualTo(1024);
    assertThat(plan.maxBytes(2)).isEqualTo(16L << 20);
    assertThat(plan.cases()).allSatisfy(c -> assertThat(c.type()).isEqualTo(DataType.FLOAT32));
    assertThat(plan.iterations()).isEmpty();
    assertThat(plan.warmUpIterations()).isEqualTo(5);
    assertThat(plan.checks()).isEqualTo(1);
    assertThat(plan.jitWarmUp()).isEqualTo(Duration.ofSeconds(10));
    assertThat(joining("--ranks 2"))
        .isEqualTo(joining(DeviceChoice.fromEnvironment(), Duration.ofSeconds(30)));
    JoinOptions patient = JoinOptions.of(0, 1).withJoinTimeout(Duration.ofMinutes(5));
    assertThat(ranks("--ranks 2").joining().apply(patient).joinTimeout())
        .isEqualTo(patient.joinTimeout());
    assertThat(ranks("--ranks 2").register()).isTrue();
    assertThat(ranks("--ranks 2").memory()).isEqualTo(PerfMemory.OWN);
  }

  @ParameterizedTest
  @CsvSource(
      delimiter = '|',
      value = {
        "-b 1K -e 70K -f 4                   | [256, 1024, 4096, 16384]",
        "-b 1000 -e 1030 -i 10 -d int8       | [1000, 1010, 1020, 1030]",
        // Sizes are rounded down to whole elements, and none is repeated.
        "-b 9 -e 17 -i 1 -d float            | [2, 3, 4]",
        "-b 1001 -e 1001 -d double           | [125]",
        // The next size would overflow.
        "-b 4194304T -e 8388607T -d uint8    | [4611686018427387904]",
        "-b 999999999999999990 -e 999999999999999999 -i 900000000000000000 -d uint8"
            + "                               | [999999999999999990]",
        "--counts 1,3,1023,65537 -d half     | [1, 3, 1023, 65537]",
        "--counts 65536,64                   | [65536, 64]",
        "--counts 65536,64,64 --tune f -d half | [64, 65536]",
      })
  void shouldMeasureTheseCounts(String line, String counts) {
    assertThat(plan(line).cases().stream().map(PerfCase::count).toList()).hasToString(counts);
  }

  @Test
  void shouldTakeAnyNumberOfIterations() {
    assertThat(CallTimer.runs(Integer.MAX_VALUE, 20)).isEqualTo(107_374_183);
    assertThat(CallTimer.runs(Integer.MAX_VALUE, 1)).isEqualTo(Integer.MAX_VALUE);
    assertThat(CallTimer.runs(21, 20)).isEqualTo(2);
    assertThat(CallTimer.runs(0, 20)).isEqualTo(1);
  }

  @Test
  void shouldCrossAllTypesWithAllOperations() {
    PerfPlan plan = plan("-b 8 -e 8 -d all -o all");

    assertThat(plan.cases()).hasSize(DataType.values().length * ReduceOp.values().length);
    assertThat(plan.cases()).allSatisfy(c -> assertThat(c.bytes(2)).isEqualTo(8));
  }

  @ParameterizedTest
  @CsvSource({"'', 90, 90", "'', '', 30", "--timeout 0.5, 90, 0.5"})
  void shouldPreferTheOptionToTheSettingAndThatToTheDefault(
      String line, String setting, double seconds) {
    CollectiveCommandOptions options = new CollectiveCommandOptions();
    new CommandLine(CommandSpec.create().addMixin("all", CommandSpec.forAnnotatedObject(options)))
        .parseArgs(line.isEmpty() ? new String[0] : line.split(" "));
    assertThat(options.timeout(Settings.of(Map.of("FLUXCCL_TIMEOUT", setting))))
        .isEqualTo(Duration.ofMillis((long) (1000 * seconds)));
  }

  @Test
  void shouldParseTheOptionsOfRanks() {
    CollectivesOptions defaults = joining("").collectives();
    assertThat(joining("--transport ethernet").collectives())
        .isEqualTo(defaults.withTransport(Transport.ETHERNET));
    assertThat(joining("--device host --timeout 0.5"))
        .isEqualTo(joining(DeviceChoice.HOST, Duration.ofMillis(500)));
    assertThat(ranks("--timeout 0.5").timeout()).isEqualTo(Duration.ofMillis(500));
    assertThat(joining("--max-blocks 8 --copy-engines").collectives())
        .isEqualTo(defaults.withMaxBlocks(8).withCopyEngines(true));
    assertThat(joining("--reproducible").collectives()).isEqualTo(defaults.withReproducible(true));
    assertThat(joining("--algorithm ring --tuning f").collectives())
        .isEqualTo(defaults.withAlgorithm(Collective.ALL_REDUCE, "ring").withTuning(Path.of("f")));
    assertThat(ranks("--no-register").register()).isFalse();
    assertThat(ranks("--memory wrapped").memory()).isEqualTo(PerfMemory.WRAPPED);
    assertThat(ranks("--memory pool").memory()).isEqualTo(PerfMemory.POOL);
  }

  @ParameterizedTest
  @CsvSource(
      delimiter = '|',
      value = {
        "-b 1X               | '1X' is no size",
        "--max-blocks 0      | max-blocks=0",
        "-b -1               | '-1' is no size",
        "-b 0                | '0' is no size",
        "-b 99999999999G     | too large",
        "-b 2 -d int32       | minbytes=2 is less than one element of int32 (4 bytes)",
        "-b 2M -e 1M         | minbytes=2097152 is more than maxbytes=1048576",
        "-f 1                | stepfactor=1 is out of range",
        "-f 2 -i 8           | -f and -i exclude each other",
        "-b 1 -e 1G -i 1 -d int8 | more than 100000 sizes",
        "--counts 0          | count=0 is out of range",
        "--counts 1 -b 8     | --counts excludes",
        "--counts 9000000000000000000 | is too large",
        "-n 0                | iters=0 is out of range",
        "-w -1               | warmup_iters=-1 is out of range; give 0 or more",
        "--check -1          | check=-1 is out of range; give 0 or more",
        "-n many             | 'many' is not an int",
        "-d float8           | type=float8 is none of int8",
        "-o xor              | op=xor is none of sum, prod, min, max, avg",
        "--device tpu        | device=tpu is none of auto, host, cuda",
        "--transport pigeon  | transport=pigeon is neither auto nor one of [SHM",
        "--timeout 0         | timeout=0.0 is out of range",
        "--jit-warmup -1     | jit-warmup=-1.0 is out of range",
        "--ranks 0           | ranks=0 is out of range; give 1 to 127",
        "--ranks 128         | ranks=128 is out of range",
        "--root 2 --ranks 2  | root=2 of 2 ranks",
        "--graph 0           | graph=0 is out of range",
        "--memory rubber     | memory=rubber is none of own, wrapped, pool",
        "--placement up      | placement=up is none of in, out, both",
        "--compare nccl      | --compare",
        "--tune f --algorithm x  | --tune and --algorithm exclude each other",
        "--tune f --json g   | --tune excludes --json",
        "--in-process        | --in-process needs --ranks N",
        "--rank 2            | did you mean '--ranks'",
        "--nonsense          | --nonsense",
        "surplus             | surplus",
        "-d int8             | give --ranks N, or start the ranks with 'fluxccl launch",
      })
  void shouldRefuseInOneLineAndWithCode2WhenTheUsageIsWrong(String line, String message) {
    Cli run = Cli.run(new FakeBackend(), ("perf all-reduce " + line).split(" "));
    run.assertFails(ExitCode.USAGE, message);
    assertThat(run.err()).startsWith("fluxccl perf all-reduce: ").hasLineCount(1);
    assertThat(run.out()).isEmpty();
  }

  @ParameterizedTest
  @CsvSource(
      delimiter = '|',
      value = {
        "perf -b 1M all-reduce --ranks 2          | put -b after all-reduce",
        "perf --ranks 2 barrier                   | put --ranks after barrier",
        "perf --verbose --no-register all-to-all  | put --register after all-to-all",
        "perf --tune f all-gather --ranks 2       | put --tune after all-gather",
        "perf barrier --ranks 2 --in-process -d bogus | type=bogus is none of int8",
        "perf barrier --ranks 2 --in-process -o bogus | op=bogus is none of sum",
      })
  void shouldRefuseOptionsInFrontOfTheCollectiveOrOfOthers(String line, String message) {
    Cli run = Cli.run(new FakeBackend(), line.split(" ")).assertFails(ExitCode.USAGE, message);
    assertThat(run.out()).isEmpty();
  }

  private static Cli asRank(String rankVariable, String sizeVariable, String size) {
    Map<String, String> environment = Map.of(rankVariable, "0", sizeVariable, size);
    String line = "perf all-reduce --ranks 4 -e 1K -n 1 --jit-warmup 0";
    return Cli.run(new FakeBackend(), environment, line.split(" "));
  }

  @ParameterizedTest
  @CsvSource({
    "FLUXCCL_RANK, FLUXCCL_NRANKS, already a rank of 2",
    "OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE,"
        + " already a rank of 2 (OMPI_COMM_WORLD_SIZE); leave --ranks out"
  })
  void shouldRefuseAnotherNumberOfRanksWhenAlreadyARank(String rank, String size, String message) {
    asRank(rank, size, "2").assertFails(ExitCode.USAGE, message);
  }

  @ParameterizedTest
  @CsvSource({"FLUXCCL_RANK, FLUXCCL_NRANKS", "PMI_RANK, PMI_SIZE"})
  void shouldTakeTheLaunchersOwnNumberOfRanksHoweverItIsWritten(String rank, String size) {
    assertThat(asRank(rank, size, "04").err()).doesNotContain("already a rank");
  }
}
