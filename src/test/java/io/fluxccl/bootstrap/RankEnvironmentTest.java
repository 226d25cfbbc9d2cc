// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import static io.fluxccl.testing.FailureAssertions.assertRefused;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.InvalidUsage;
import io.fluxccl.testing.OtherUser;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.stream.Stream;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.MethodSource;
import org.junit.jupiter.params.provider.ValueSource;

@Tag("jdk")
class RankEnvironmentTest {
  private static final String OWN =
      " FLUXCCL_RANK=2 FLUXCCL_NRANKS=4 FLUXCCL_ADDR=eth0:10.0.0.1:29500";
  private static final String OPEN_MPI =
      " OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=3"
          + " OMPI_COMM_WORLD_LOCAL_SIZE=4 PMIX_RANK=3 PMIX_NAMESPACE=2051342337";
  private static final String OPEN_MPI_ON_HOSTS =
      OPEN_MPI + " OMPI_COMM_WORLD_LOCAL_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=1";
  private static final String SLURM =
      " SLURM_PROCID=5 SLURM_STEP_NUM_TASKS=8 SLURM_LOCALID=1 SLURM_JOB_ID=4242 SLURM_STEP_ID=0"
          + " SLURM_STEP_NUM_NODES=2 SLURM_STEP_NODELIST=gpu[003-004,007]-ib";

  /** A step with one task on each of two nodes. */
  private static final String SLURM_NODES =
      SLURM + " SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2 SLURM_LOCALID=0";

  private static final String TORCHRUN =
      " RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 MASTER_ADDR=node1.example"
          + " MASTER_PORT=29400";

  /** Of a pod of an indexed Job that is named train. */
  private static final String KUBERNETES =
      " JOB_COMPLETION_INDEX=2 FLUXCCL_NRANKS=4 HOSTNAME=train-2";

  /** Returns variables that are written as in a shell. The last value of a name counts. */
  private static Map<String, String> variables(String text) {
    Map<String, String> all = new HashMap<>();
    for (String each : text.strip().split(" +")) {
      int equals = each.indexOf('=');
      all.put(each.substring(0, equals), each.substring(equals + 1));
    }
    return all;
  }

  private static RankEnvironment read(String text) {
    return RankEnvironment.from(variables(text));
  }

  private static RankEnvironment read(String text, String name, String value) {
    Map<String, String> all = variables(text);
    all.put(name, value);
    return RankEnvironment.from(all);
  }

  @ParameterizedTest
  @CsvSource(
      delimiter = '|',
      value = {
        OPEN_MPI + SLURM + TORCHRUN + OWN + "           | FluxCCL    | 2 | 4 | eth0:10.0.0.1:29500",
        OPEN_MPI + "                                    | Open MPI   | 3 | 4 | 127.0.0.1:2\\d{4}",
        OPEN_MPI_ON_HOSTS + "                           | Open MPI   | 3 | 4 | none",
        "PMI_RANK=1 PMI_SIZE=3                          | PMI        | 1 | 3 | .*",
        "PMIX_RANK=2 PMI_SIZE=3                         | PMI        | 2 | 3 | .*",
        SLURM + "                                       | Slurm      | 5 | 8 | gpu003-ib:2\\d{4}",
        SLURM + " SLURM_STEP_NODELIST=alpha,beta[1-2]   | Slurm      | 5 | 8 | alpha:2\\d{4}",
        SLURM + " SLURM_STEP_NUM_NODES=1                | Slurm      | 5 | 8 | 127.0.0.1:2\\d{4}",
        // srun --mpi=pmi2
        SLURM + " PMI_RANK=5 PMI_SIZE=8                 | Slurm      | 5 | 8 | gpu003-ib:2\\d{4}",
        // A step with a single component.
        SLURM + " SLURM_HET_SIZE=1                      | Slurm      | 5 | 8 | gpu003-ib:2\\d{4}",
        KUBERNETES + "                                  | Kubernetes | 2 | 4 | train-0.train:29500",
        KUBERNETES + " FLUXCCL_ADDR=a-0.b:1             | Kubernetes | 2 | 4 | a-0.b:1",
        // The host name is not the pod's name, but its node's or a truncated one.
        KUBERNETES + " HOSTNAME=node12                  | Kubernetes | 2 | 4 | none",
        // A pod with ranks of its own leaves them to its launcher.
        KUBERNETES + " FLUXCCL_RANK=0 FLUXCCL_NRANKS=2  | FluxCCL    | 0 | 2 | .*",
        TORCHRUN + "                                    | torchrun   | 1 | 2 | node1.example:29400",
        // The agent uses the port itself.
        TORCHRUN + " TORCHELASTIC_USE_AGENT_STORE=True  | torchrun   | 1 | 2 | node1.example:29401",
        TORCHRUN + " MASTER_ADDR=fd00::2                | torchrun   | 1 | 2 | \\[fd00::2]:29400",
        TORCHRUN + " MASTER_ADDR=[fd00::2]              | torchrun   | 1 | 2 | \\[fd00::2]:29400",
        // Several launchers that agree: the first one of them.
        OPEN_MPI + " PMI_RANK=3 PMI_SIZE=4 RANK=3 WORLD_SIZE=4 | Open MPI | 3 | 4 | .*",
        // A launcher that a step of Slurm starts on each node.
        TORCHRUN
            + SLURM
            + " SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1 SLURM_STEP_NUM_NODES=1"
            + " SLURM_LOCALID=0                         | torchrun   | 1 | 2 | .*",
        SLURM_NODES + " PMI_RANK=6 PMI_SIZE=16          | PMI        | 6 | 16 | .*",
        // Its own variables precede launchers that disagree, and a heterogeneous step.
        OWN + SLURM + " SLURM_HET_SIZE=2                | FluxCCL    | 2 | 4 | .*",
        // Variables of a batch script, which is no rank, and a pod without a number of ranks.
        "SLURM_JOB_ID=7 SLURM_PROCID=0 SLURM_NTASKS=8   | none       | 0 | 1 | .*",
        "SLURM_PROCID=0 SLURM_HET_SIZE=2                | none       | 0 | 1 | .*",
        "JOB_COMPLETION_INDEX=2 HOSTNAME=train-2        | none       | 0 | 1 | .*",
      })
  void shouldReadTheVariablesOfEachLauncher(
      String variables, String launcher, int rank, int nRanks, String address) {
    RankEnvironment read = read(variables);
    assertThat(read.launcher()).isEqualTo(launcher);
    assertThat(read.launched()).isEqualTo(!launcher.equals("none"));
    assertThat(read.rank()).isEqualTo(rank);
    assertThat(read.nRanks()).isEqualTo(nRanks);
    assertThat(read.address().orElse("none")).matches(address);
  }

  @Test
  void shouldReadThePlaceOfARankOnItsHost() {
    assertThat(read(OPEN_MPI).localRank()).hasValue(3);
    assertThat(read(OPEN_MPI).localSize()).hasValue(4);
    assertThat(read(SLURM).localRank()).hasValue(1);
    assertThat(read(OWN).localRank()).isEmpty();
  }

  @Test
  void shouldDeriveOneLoopbackAddressForAllRanksOfAnOpenMpiJob() {
    RankEnvironment one = read(OPEN_MPI);
    RankEnvironment other = read(OPEN_MPI + " OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_LOCAL_RANK=0");
    assertThat(other.address()).isEqualTo(one.address());
    assertThat(other.jobIdentity()).isEqualTo(one.jobIdentity()).isNotEmpty();
  }

  @Test
  void shouldReadASecretAndAUniqueId() {
    RankEnvironment secret = read(OWN, "FLUXCCL_SECRET", "sixteen characters");
    assertThat(secret.secret()).hasValue(JobSecret.of("sixteen characters"));
    assertThat(secret.toString()).doesNotContain("sixteen");
    InetSocketAddress root =
        new InetSocketAddress(UniqueId.addressOf(new byte[] {10, 0, 0, 1}, 0), 1);
    UniqueId id = UniqueId.of(root, new byte[32]);
    RankEnvironment read = read(OPEN_MPI + " FLUXCCL_UNIQUE_ID=" + id.toBase64());
    assertThat(read.uniqueId()).hasValue(id);
    assertThat(read.address()).isEmpty();
  }

  @Test
  void shouldAskForAnAddressThatTheLauncherDoesNotGive() {
    assertRefused(read(OPEN_MPI_ON_HOSTS)::requireAddress, "FLUXCCL_ADDR");
    assertRefused(
        read(KUBERNETES + " HOSTNAME=node12")::requireAddress,
        "rank 2 of 4 was started by Kubernetes; set FLUXCCL_ADDR");
  }

  @Test
  void shouldFormASingleRankJobIfNoVariableIsSet() {
    try (TcpBootstrap alone = TcpBootstrap.create(0, 1, BootstrapOptions.defaults())) {
      BootstrapContract.await(alone.initialize(read("PATH=/bin")));
      BootstrapContract.await(alone.barrier(BootstrapContract.soon()));
    }
  }

  @ParameterizedTest
  @CsvSource(
      delimiter = '|',
      value = {
        TORCHRUN + " | torchrun | RANK=1       | WORLD_SIZE=2",
        SLURM + "    | Slurm    | SLURM_PROCID=5 | SLURM_STEP_NUM_TASKS=8",
      })
  void shouldNameTheVariablesToUnsetIfOpenMpiContradictsALauncher(
      String variables, String launcher, String rank, String size) {
    assertThatThrownBy(() -> read(OPEN_MPI + " " + variables))
        .isInstanceOf(InvalidUsage.class)
        .hasMessage(
            "OMPI_COMM_WORLD_RANK=3 of OMPI_COMM_WORLD_SIZE=4 (Open MPI) contradicts %s of %s (%s):"
                + " unset OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE if %s started this"
                + " process, %s and %s if Open MPI did",
            rank, size, launcher, launcher, rank.split("=")[0], size.split("=")[0]);
  }

  @ParameterizedTest
  @CsvSource(
      delimiter = '|',
      value = {
        TORCHRUN
            + " PMI_RANK=1 PMI_SIZE=3"
            + " | PMI_RANK=1 of PMI_SIZE=3 (PMI) contradicts RANK=1 of WORLD_SIZE=2",
        // One task on each node, but too few ranks for these.
        SLURM_NODES + " OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1 | OMPI_COMM_WORLD_SIZE=1",
        KUBERNETES
            + TORCHRUN
            + " | JOB_COMPLETION_INDEX=2 of FLUXCCL_NRANKS=4 (Kubernetes)"
            + " contradicts RANK=1 of WORLD_SIZE=2 (torchrun)",
        OPEN_MPI + " PMI_RANK=4 PMI_SIZE=4 | PMI_RANK=4: give 0 to 3",
        "FLUXCCL_RANK=0                    | FLUXCCL_NRANKS",
        SLURM + " SLURM_STEP_NODELIST=[[   | SLURM_STEP_NODELIST",
      })
  void shouldRefuseVariablesThatAreInvalidOrContradictEachOther(String variables, String message) {
    assertRefused(() -> read(variables), message);
  }

  @ParameterizedTest
  @CsvSource(
      delimiter = '|',
      value = {
        OWN + "      | FLUXCCL_RANK        | four; 4; -1; 99999999999",
        OWN + "      | FLUXCCL_NRANKS      | 0; 1e3",
        OWN + "      | FLUXCCL_LOCAL_RANK  | 4",
        OWN + "      | FLUXCCL_ADDR        | nowhere; 10.0.0.1:99999; ::1:5",
        OWN + "      | FLUXCCL_UNIQUE_ID   | abc",
        OWN + "      | FLUXCCL_SECRET      | short",
        OWN + "      | FLUXCCL_SECRET_FILE | /proc/nowhere",
        TORCHRUN + "| MASTER_ADDR | a b; 10.0.0.1:29500; n1:1; [10.0.0.1]; eth0:10.0.0.1; [n1]",
      })
  void shouldNameTheInvalidVariable(String variables, String name, String values) {
    for (String value : values.split("; ")) {
      String problem = name.equals("MASTER_ADDR") ? "=" + value + " is no host" : "";
      assertRefused(() -> read(variables, name, value), name + problem);
    }
  }

  @ParameterizedTest
  @CsvSource({"SLURM_HET_SIZE, 2", "SLURM_HET_GROUP_0, 1"})
  void shouldRefuseAHeterogeneousStepOfSlurm(String name, String value) {
    for (String more : List.of(OPEN_MPI, " PMI_RANK=5 PMI_SIZE=8", TORCHRUN, " SLURM_NTASKS=8")) {
      assertRefused(
          () -> read(SLURM + more, name, value),
          name + "=" + value + ": heterogeneous steps of Slurm are not supported",
          "set FLUXCCL_RANK, FLUXCCL_NRANKS and FLUXCCL_ADDR",
          "unset " + name);
    }
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
    String address = read(SLURM, "SLURM_STEP_NODELIST", list).address().orElseThrow();
    assertThat(RootAddress.parse(address).host()).isEqualTo(host);
  }

  static Stream<String> malformedLists() {
    String withoutSpaces =
        "[[ n[ n[1 n[1- n[1-2 n1] n[] n[a] n[1-a] n[-1] n[1,] n[,1] n[1-2-3] n[2-1] a[1-2]b[4-3]"
            + " n[[1]] a,,b ,a a, a;b n[١-٢] a,n[ n[12345678901234567890]";
    return Stream.concat(Stream.of("a b"), Stream.of(withoutSpaces.split(" ")));
  }

  @ParameterizedTest
  @MethodSource("malformedLists")
  void shouldQuoteAListOfSlurmThatIsMalformed(String list) {
    assertRefused(
        () -> read(SLURM, "SLURM_STEP_NODELIST", list),
        "SLURM_STEP_NODELIST=" + list + " is no list of hosts",
        "set FLUXCCL_ADDR=ip:port");
  }

  @ParameterizedTest
  @ValueSource(strings = {"[1]", "a,", "n[1,"})
  void shouldRefuseAListThatIsTooLongWithoutOverflowingTheStack(String part) {
    for (int times : new int[] {1_300, 100_000}) {
      assertRefused(() -> read(SLURM, "SLURM_STEP_NODELIST", part.repeat(times) + "["));
    }
  }

  @Test
  void shouldWriteAsciiDigitsInEachLocale() {
    Locale before = Locale.getDefault();
    try {
      Locale.setDefault(Locale.forLanguageTag("ar-EG-u-nu-arab"));
      assertThat(read(KUBERNETES).address()).hasValue("train-0.train:29500");
      assertThat(read(SLURM).address().orElseThrow()).matches("gpu003-ib:2[0-9]{4}");
      assertThat(read(SLURM + " SLURM_STEP_NUM_NODES=1").address().orElseThrow())
          .matches("127\\.0\\.0\\.1:2[0-9]{4}");
    } finally {
      Locale.setDefault(before);
    }
  }

  @ParameterizedTest
  @CsvSource({
    "fd00::2:29500, [fd00::2]:29500",
    "::1:29500, [::1]:29500",
    "::1:5, [::1]:5",
    "eth0:fd00::2:29500, eth0:[fd00::2]:29500",
    "fd00::2, [fd00::2]:29500",
    "fd00::2:2950, [fd00::2]:2950",
    "1:2:3:4:5:6:7:8:80, [1:2:3:4:5:6:7:8]:80",
    "[fd00::2], [fd00::2]:29500"
  })
  void shouldSuggestBracketsForAnIpv6Address(String given, String right) {
    assertRefused(
        () -> RootAddress.parse(given),
        "address=" + given + "; ",
        "an IPv6 address stands in brackets: " + right);
    assertThat(RootAddress.parse(right).host()).contains(":");
  }

  private static void assertSecretRefused(Path file, String... message) {
    assertRefused(() -> secretIn(file), message);
  }

  private static Optional<JobSecret> secretIn(Path file) {
    return JobSecret.from(Map.of("FLUXCCL_SECRET_FILE", file.toString()));
  }

  private static Path secretFile(Path folder, String mode) throws IOException {
    Path file = Files.writeString(folder.resolve("secret"), "a secret of the job\n");
    return Files.setPosixFilePermissions(file, PosixFilePermissions.fromString(mode));
  }

  @Test
  void shouldReadTheSecretFromAFile(@TempDir Path folder) throws IOException {
    Path file = secretFile(folder, "rw-------");
    assertThat(secretIn(file)).hasValue(JobSecret.of("a secret of the job"));
    Files.writeString(file, "x".repeat(10_000));
    assertSecretRefused(file);
    JobSecret random = JobSecret.random();
    assertThat(JobSecret.of(random.text())).isEqualTo(random).hasSameHashCodeAs(random);
  }

  @ParameterizedTest
  @ValueSource(strings = {"rw-r--r--", "rw----r--", "rw--w----", "rw-----w-"})
  void shouldRefuseASecretThatOthersCanReadOrChange(String mode, @TempDir Path folder)
      throws IOException {
    Path file = secretFile(folder, mode);
    assertSecretRefused(file, "run: chmod 600 " + file);
  }

  @Test
  void shouldRefuseASecretOrALinkToItOfAnotherUser(@TempDir Path folder) throws IOException {
    OtherUser.requireRoot();
    Path file = secretFile(folder, "rw-------");
    Path link = Files.createSymbolicLink(folder.resolve("link"), file);
    assertThat(secretIn(link)).isPresent();
    OtherUser.give(link);
    assertSecretRefused(link, "is a link of user");
    OtherUser.give(file);
    assertSecretRefused(file, "run: chown 0 " + file);
  }

  @Test
  void shouldReadAddressesInAllForms() {
    RootAddress plain = RootAddress.parse("10.1.2.3:80");
    assertThat(plain.networkInterface()).isNull();
    assertThat(plain).hasToString("10.1.2.3:80");
    RootAddress named = RootAddress.parse("eth0.5:[fe80::1]:80");
    assertThat(named.networkInterface()).isEqualTo("eth0.5");
    assertThat(named.host()).isEqualTo("fe80::1");
    assertThat(named).hasToString("eth0.5:[fe80::1]:80");
    assertThat(RootAddress.parse("[::1]:7").host()).isEqualTo("::1");
    assertRefused(() -> RootAddress.parse("x".repeat(10_000) + ":1"));
    assertRefused(() -> RootAddress.parse(null));
  }

  @Test
  void shouldDistinguishHostsByTheirOverride() {
    assertThat(HostIdentity.of("a").hostHash()).isEqualTo(HostIdentity.of("a").hostHash());
    assertThat(HostIdentity.of("a").hostHash()).isNotEqualTo(HostIdentity.of("b").hostHash());
    assertThat(HostIdentity.of(null).hostHash()).isEqualTo(HostIdentity.of("").hostHash());
    assertThat(HostIdentity.of("a").processHash()).isNotEqualTo(HostIdentity.of("b").processHash());
  }

  @Test
  void shouldRefuseInvalidOptions() {
    assertRefused(() -> options().timeout(Duration.ZERO).build());
    assertRefused(() -> options().messageLimit(0).build());
    assertRefused(() -> options().heartbeatInterval(Duration.ofNanos(1)).build());
    assertRefused(() -> options().heartbeatInterval(Duration.ofSeconds(11)).build());
    assertRefused(() -> TcpBootstrap.create(4, 4, options().build()));
    assertRefused(() -> NetworkAddresses.ofInterface("nosuch0"), "lo");
  }

  private static BootstrapOptions.Builder options() {
    return BootstrapOptions.builder(Map.of());
  }

  @Test
  void shouldRunWithoutASecretOnlyIfFluxcclInsecureIsOne() {
    assertThat(insecure(Map.of())).isFalse();
    assertThat(insecure(Map.of("FLUXCCL_INSECURE", ""))).isFalse();
    assertThat(insecure(Map.of("FLUXCCL_INSECURE", "0"))).isFalse();
    assertThat(insecure(Map.of("FLUXCCL_INSECURE", "1"))).isTrue();
    for (String neither : List.of("true", "yes", "2", "off")) {
      assertRefused(
          () -> insecure(Map.of("FLUXCCL_INSECURE", neither)),
          "FLUXCCL_INSECURE=" + neither + ": give 0 or 1");
    }
  }

  private static boolean insecure(Map<String, String> environment) {
    return BootstrapOptions.builder(environment).build().insecure();
  }
}
