// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

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
import java.util.Map;
import java.util.function.UnaryOperator;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

@Tag("jdk")
class RankEnvironmentTest {
  private static final Map<String, String> OWN =
      Map.of("FLUXCCL_RANK", "2", "FLUXCCL_NRANKS", "4", "FLUXCCL_ADDR", "eth0:10.0.0.1:29500");
  private static final Map<String, String> OPEN_MPI =
      Map.of(
          "OMPI_COMM_WORLD_RANK", "3",
          "OMPI_COMM_WORLD_SIZE", "4",
          "OMPI_COMM_WORLD_LOCAL_RANK", "3",
          "OMPI_COMM_WORLD_LOCAL_SIZE", "4",
          "PMIX_RANK", "3",
          "PMIX_NAMESPACE", "2051342337");
  private static final Map<String, String> SLURM =
      Map.of(
          "SLURM_PROCID", "5",
          "SLURM_STEP_NUM_TASKS", "8",
          "SLURM_LOCALID", "1",
          "SLURM_JOB_ID", "4242",
          "SLURM_STEP_ID", "0",
          "SLURM_STEP_NUM_NODES", "2",
          "SLURM_STEP_NODELIST", "gpu[003-004,007]-ib");
  private static final Map<String, String> TORCHRUN =
      Map.of(
          "RANK", "1",
          "WORLD_SIZE", "2",
          "LOCAL_RANK", "1",
          "LOCAL_WORLD_SIZE", "2",
          "MASTER_ADDR", "node1.example",
          "MASTER_PORT", "29400");

  /** Of a pod of an indexed Job that is named train. */
  private static final Map<String, String> KUBERNETES =
      Map.of("JOB_COMPLETION_INDEX", "2", "FLUXCCL_NRANKS", "4", "HOSTNAME", "train-2");

  private static Map<String, String> with(Map<String, String> base, String... more) {
    Map<String, String> all = new HashMap<>(base);
    for (int i = 0; i < more.length; i += 2) {
      all.put(more[i], more[i + 1]);
    }
    return all;
  }

  @Test
  void shouldReadItsOwnVariablesBeforeAllOthers() {
    Map<String, String> all = new HashMap<>(OPEN_MPI);
    all.putAll(SLURM);
    all.putAll(TORCHRUN);
    all.putAll(OWN);
    all.put("FLUXCCL_SECRET", "sixteen characters");
    RankEnvironment read = RankEnvironment.from(all);
    assertThat(read.rank()).isEqualTo(2);
    assertThat(read.nRanks()).isEqualTo(4);
    assertThat(read.localRank()).isEmpty();
    assertThat(read.address()).hasValue("eth0:10.0.0.1:29500");
    assertThat(read.secret()).hasValue(JobSecret.of("sixteen characters"));
    assertThat(read.toString()).doesNotContain("sixteen");
  }

  @Test
  void shouldReadAUniqueId() {
    UniqueId id =
        UniqueId.of(
            new InetSocketAddress(UniqueId.addressOf(new byte[] {10, 0, 0, 1}, 0), 1),
            new byte[32]);
    RankEnvironment read = RankEnvironment.from(with(OPEN_MPI, "FLUXCCL_UNIQUE_ID", id.toBase64()));
    assertThat(read.uniqueId()).hasValue(id);
    assertThat(read.address()).isEmpty();
  }

  @Test
  void shouldDeriveOneLoopbackAddressForAllRanksOfAnOpenMpiJob() {
    RankEnvironment read = RankEnvironment.from(OPEN_MPI);
    assertThat(read.rank()).isEqualTo(3);
    assertThat(read.localRank()).hasValue(3);
    assertThat(read.localSize()).hasValue(4);
    RootAddress address = RootAddress.parse(read.address().get());
    assertThat(address.host()).isEqualTo("127.0.0.1");
    assertThat(address.port()).isBetween(20_000, 29_999);
    RankEnvironment other =
        RankEnvironment.from(
            with(OPEN_MPI, "OMPI_COMM_WORLD_RANK", "0", "OMPI_COMM_WORLD_LOCAL_RANK", "0"));
    assertThat(other.address()).isEqualTo(read.address());
    assertThat(other.jobIdentity()).isEqualTo(read.jobIdentity()).isNotEmpty();
  }

  @Test
  void shouldAskForAnAddressWhenAnOpenMpiJobSpansHosts() {
    RankEnvironment read =
        RankEnvironment.from(
            with(OPEN_MPI, "OMPI_COMM_WORLD_LOCAL_SIZE", "2", "OMPI_COMM_WORLD_LOCAL_RANK", "1"));
    assertThat(read.address()).isEmpty();
    assertThatThrownBy(read::requireAddress)
        .isInstanceOf(InvalidUsage.class)
        .hasMessageContaining("FLUXCCL_ADDR");
  }

  @Test
  void shouldReadPmi() {
    RankEnvironment read = RankEnvironment.from(Map.of("PMI_RANK", "1", "PMI_SIZE", "3"));
    assertThat(read.rank()).isEqualTo(1);
    assertThat(read.nRanks()).isEqualTo(3);
    assertThat(RankEnvironment.from(Map.of("PMIX_RANK", "2", "PMI_SIZE", "3")).rank()).isEqualTo(2);
  }

  @Test
  void shouldReadSlurmVariablesAndUseTheFirstHost() {
    RankEnvironment read = RankEnvironment.from(SLURM);
    assertThat(read.rank()).isEqualTo(5);
    assertThat(read.localRank()).hasValue(1);
    assertThat(read.address().get()).startsWith("gpu003-ib:");
    assertThat(
            RankEnvironment.from(with(SLURM, "SLURM_STEP_NODELIST", "alpha,beta[1-2]"))
                .address()
                .get())
        .startsWith("alpha:");
    assertThat(RankEnvironment.from(with(SLURM, "SLURM_STEP_NUM_NODES", "1")).address().get())
        .startsWith("127.0.0.1:");
  }

  @Test
  void shouldNotTreatASlurmBatchScriptAsARank() {
    RankEnvironment read =
        RankEnvironment.from(Map.of("SLURM_JOB_ID", "7", "SLURM_PROCID", "0", "SLURM_NTASKS", "8"));
    assertThat(read.launched()).isFalse();
    assertThat(read.nRanks()).isEqualTo(1);
  }

  @Test
  void shouldUseSlurmsAddressIfPmiVariablesAreSetToo() {
    Map<String, String> pmi2 = with(SLURM, "PMI_RANK", "5", "PMI_SIZE", "8");
    assertThat(RankEnvironment.from(pmi2)).isEqualTo(RankEnvironment.from(SLURM));
  }

  @Test
  void shouldReadAKubernetesIndexedJobAndUseItsFirstPod() {
    RankEnvironment read = RankEnvironment.from(KUBERNETES);
    assertThat(read.rank()).isEqualTo(2);
    assertThat(read.nRanks()).isEqualTo(4);
    assertThat(read.address()).hasValue("train-0.train:29500");
    assertThat(RankEnvironment.from(with(KUBERNETES, "FLUXCCL_ADDR", "a-0.b:1")).address())
        .hasValue("a-0.b:1");
    // The host name is not the pod's name, but its node's or a truncated one.
    RankEnvironment other = RankEnvironment.from(with(KUBERNETES, "HOSTNAME", "node12"));
    assertThat(other.address()).isEmpty();
    assertThatThrownBy(other::requireAddress)
        .isInstanceOf(InvalidUsage.class)
        .hasMessageContaining("rank 2 of 4 was started by Kubernetes; set FLUXCCL_ADDR");
  }

  @Test
  void shouldLeaveAPodWithRanksOfItsOwnToItsLauncher() {
    Map<String, String> launched = with(KUBERNETES, "FLUXCCL_RANK", "0", "FLUXCCL_NRANKS", "2");
    assertThat(RankEnvironment.from(launched).launcher()).isEqualTo("FluxCCL");
    Map<String, String> alone = Map.of("JOB_COMPLETION_INDEX", "2", "HOSTNAME", "train-2");
    assertThat(RankEnvironment.from(alone).launched()).isFalse();
  }

  @Test
  void shouldReadTorchrunAndUseTheNextPortIfItsAgentUsesThePort() {
    assertThat(RankEnvironment.from(TORCHRUN).address()).hasValue("node1.example:29400");
    assertThat(
            RankEnvironment.from(with(TORCHRUN, "TORCHELASTIC_USE_AGENT_STORE", "True")).address())
        .hasValue("node1.example:29401");
  }

  @Test
  void shouldFormASingleRankJobIfNoVariableIsSet() {
    RankEnvironment read = RankEnvironment.from(Map.of("PATH", "/bin"));
    assertThat(read.nRanks()).isEqualTo(1);
    assertThat(read.rank()).isZero();
    try (TcpBootstrap alone = TcpBootstrap.create(0, 1, BootstrapOptions.defaults())) {
      BootstrapContract.await(alone.initialize(read));
      BootstrapContract.await(alone.barrier(BootstrapContract.soon()));
    }
  }

  @ParameterizedTest
  @CsvSource({
    "FLUXCCL_RANK, four",
    "FLUXCCL_RANK, 4",
    "FLUXCCL_RANK, -1",
    "FLUXCCL_RANK, 99999999999",
    "FLUXCCL_NRANKS, 0",
    "FLUXCCL_NRANKS, 1e3",
    "FLUXCCL_LOCAL_RANK, 4",
    "FLUXCCL_ADDR, nowhere",
    "FLUXCCL_ADDR, 10.0.0.1:99999",
    "FLUXCCL_ADDR, ::1:5",
    "FLUXCCL_UNIQUE_ID, abc",
    "FLUXCCL_SECRET, short",
    "FLUXCCL_SECRET_FILE, /proc/nowhere"
  })
  void shouldNameTheInvalidVariable(String name, String value) {
    assertThatThrownBy(() -> RankEnvironment.from(with(OWN, name, value)))
        .isInstanceOf(InvalidUsage.class)
        .hasMessageContaining(name);
  }

  @Test
  void shouldNameTheVariableThatIsMissing() {
    assertThatThrownBy(() -> RankEnvironment.from(Map.of("FLUXCCL_RANK", "0")))
        .isInstanceOf(InvalidUsage.class)
        .hasMessageContaining("FLUXCCL_NRANKS");
    assertThatThrownBy(() -> RankEnvironment.from(with(SLURM, "SLURM_STEP_NODELIST", "[[")))
        .isInstanceOf(InvalidUsage.class)
        .hasMessageContaining("SLURM_STEP_NODELIST");
    assertThatThrownBy(() -> RankEnvironment.from(with(TORCHRUN, "MASTER_ADDR", "a b")))
        .isInstanceOf(InvalidUsage.class)
        .hasMessageContaining("MASTER_ADDR");
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
    assertThatThrownBy(() -> RootAddress.parse(given))
        .isInstanceOf(InvalidUsage.class)
        .hasMessageStartingWith("address=" + given + "; ")
        .hasMessageEndingWith("an IPv6 address stands in brackets: " + right);
    assertThat(RootAddress.parse(right).host()).contains(":");
  }

  @ParameterizedTest
  @CsvSource({"10.0.0.1:29500", "node1:29500", "[10.0.0.1]", "eth0:10.0.0.1", "[node1]"})
  void shouldRefuseAMasterAddressThatIsMoreThanAHost(String host) {
    assertThatThrownBy(() -> RankEnvironment.from(with(TORCHRUN, "MASTER_ADDR", host)))
        .isInstanceOf(InvalidUsage.class)
        .hasMessageStartingWith("MASTER_ADDR=" + host + " is no host");
  }

  @ParameterizedTest
  @CsvSource({"fd00::2", "[fd00::2]"})
  void shouldReadAMasterAddressOfIpv6(String host) {
    assertThat(RankEnvironment.from(with(TORCHRUN, "MASTER_ADDR", host)).address())
        .hasValue("[fd00::2]:29400");
  }

  @Test
  void shouldReadTheSecretFromAFile(@TempDir Path folder) throws IOException {
    Path file = Files.writeString(folder.resolve("secret"), "a secret of the job\n");
    Files.setPosixFilePermissions(file, PosixFilePermissions.fromString("rw-------"));
    assertThat(JobSecret.from(Map.of("FLUXCCL_SECRET_FILE", file.toString())))
        .hasValue(JobSecret.of("a secret of the job"));
    Files.writeString(file, "x".repeat(10_000));
    assertThatThrownBy(() -> JobSecret.from(Map.of("FLUXCCL_SECRET_FILE", file.toString())))
        .isInstanceOf(InvalidUsage.class);
    JobSecret random = JobSecret.random();
    assertThat(JobSecret.of(random.text())).isEqualTo(random).hasSameHashCodeAs(random);
  }

  @ParameterizedTest
  @ValueSource(strings = {"rw-r--r--", "rw----r--", "rw--w----", "rw-----w-"})
  void shouldRefuseASecretThatOthersCanReadOrChange(String mode, @TempDir Path folder)
      throws IOException {
    Path file = Files.writeString(folder.resolve("secret"), "a secret of the job\n");
    Files.setPosixFilePermissions(file, PosixFilePermissions.fromString(mode));
    assertThatThrownBy(() -> JobSecret.from(Map.of("FLUXCCL_SECRET_FILE", file.toString())))
        .isInstanceOf(InvalidUsage.class)
        .hasMessageContaining("run: chmod 600 " + file);
  }

  @Test
  void shouldRefuseASecretOfAnotherUser(@TempDir Path folder) throws IOException {
    assumeTrue(
        Files.getAttribute(Path.of("/proc/self"), "unix:uid").equals(0),
        "only root can give files away");
    Path file = Files.writeString(folder.resolve("secret"), "a secret of the job\n");
    Files.setPosixFilePermissions(file, PosixFilePermissions.fromString("rw-------"));
    Files.setAttribute(file, "unix:uid", 65534);
    assertThatThrownBy(() -> JobSecret.from(Map.of("FLUXCCL_SECRET_FILE", file.toString())))
        .isInstanceOf(InvalidUsage.class)
        .hasMessageContaining("run: chown 0 " + file);
  }

  @Test
  void shouldRefuseASecretToWhichALinkOfAnotherUserLeads(@TempDir Path folder) throws IOException {
    Path file = Files.writeString(folder.resolve("secret"), "a secret of the job\n");
    Files.setPosixFilePermissions(file, PosixFilePermissions.fromString("rw-------"));
    Path link = Files.createSymbolicLink(folder.resolve("link"), file);
    assertThat(JobSecret.from(Map.of("FLUXCCL_SECRET_FILE", link.toString()))).isPresent();
    OtherUser.give(link);
    assertThatThrownBy(() -> JobSecret.from(Map.of("FLUXCCL_SECRET_FILE", link.toString())))
        .isInstanceOf(InvalidUsage.class)
        .hasMessageContaining("is a link of user");
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
    assertThatThrownBy(() -> RootAddress.parse("x".repeat(10_000) + ":1"))
        .isInstanceOf(InvalidUsage.class);
    assertThatThrownBy(() -> RootAddress.parse(null)).isInstanceOf(InvalidUsage.class);
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
    for (UnaryOperator<BootstrapOptions.Builder> wrong :
        List.<UnaryOperator<BootstrapOptions.Builder>>of(
            builder -> builder.timeout(Duration.ZERO),
            builder -> builder.messageLimit(0),
            builder -> builder.heartbeatInterval(Duration.ofNanos(1)),
            builder -> builder.heartbeatInterval(Duration.ofSeconds(11)))) {
      BootstrapOptions.Builder builder = wrong.apply(BootstrapOptions.builder(Map.of()));
      assertThatThrownBy(builder::build).isInstanceOf(InvalidUsage.class);
    }
    BootstrapOptions right = BootstrapOptions.builder(Map.of()).build();
    assertThatThrownBy(() -> TcpBootstrap.create(4, 4, right)).isInstanceOf(InvalidUsage.class);
    assertThatThrownBy(() -> NetworkAddresses.ofInterface("nosuch0"))
        .isInstanceOf(InvalidUsage.class)
        .hasMessageContaining("lo");
  }

  @Test
  void shouldRunWithoutASecretOnlyIfFluxcclInsecureIsOne() {
    assertThat(insecure(Map.of())).isFalse();
    assertThat(insecure(Map.of("FLUXCCL_INSECURE", ""))).isFalse();
    assertThat(insecure(Map.of("FLUXCCL_INSECURE", "0"))).isFalse();
    assertThat(insecure(Map.of("FLUXCCL_INSECURE", "1"))).isTrue();
    for (String neither : List.of("true", "yes", "2", "off")) {
      assertThatThrownBy(() -> insecure(Map.of("FLUXCCL_INSECURE", neither)))
          .isInstanceOf(InvalidUsage.class)
          .hasMessage("FLUXCCL_INSECURE=" + neither + ": give 0 or 1");
    }
  }

  private static boolean insecure(Map<String, String> environment) {
    return BootstrapOptions.builder(environment).build().insecure();
  }
}
