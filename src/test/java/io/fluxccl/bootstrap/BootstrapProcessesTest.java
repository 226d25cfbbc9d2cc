// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import static io.fluxccl.bootstrap.BootstrapContract.await;
import static io.fluxccl.bootstrap.BootstrapContract.in;
import static io.fluxccl.bootstrap.BootstrapContract.soon;
import static io.fluxccl.testing.FailureAssertions.failureOf;
import static java.util.concurrent.CompletableFuture.delayedExecutor;
import static java.util.concurrent.CompletableFuture.runAsync;
import static java.util.concurrent.TimeUnit.MILLISECONDS;
import static org.assertj.core.api.Assertions.assertThat;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.fluxccl.FluxCclException;
import io.fluxccl.RemoteFailure;
import io.fluxccl.Timeout;
import io.fluxccl.testing.Ports;
import io.fluxccl.testing.Rounds;
import io.fluxccl.testing.TestJvms;
import io.fluxccl.testkit.ProcessRank;
import io.fluxccl.testkit.ProcessRanks;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.OptionalInt;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.locks.LockSupport;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Ranks in processes of their own. */
@Tag("multiprocess")
@org.junit.jupiter.api.Timeout(120)
class BootstrapProcessesTest {
  private final List<ProcessRank> processes = new ArrayList<>();
  @TempDir Path folder;

  @AfterEach
  void endAll() {
    processes.forEach(ProcessRank::close);
  }

  private static ProcessRanks.Builder process(String what) {
    return TestJvms.withLog(1, BootstrapProcess.class, what).removeVariables(TestJvms::isOfJob);
  }

  private ProcessRank start(ProcessRanks.Builder builder) {
    processes.add(builder.startRank(0));
    return processes.get(processes.size() - 1);
  }

  private ProcessRank startRank(int rank, int nRanks, String address) {
    return start(
        process("stay")
            .variables(
                Map.of(
                    "FLUXCCL_RANK", "" + rank,
                    "FLUXCCL_NRANKS", "" + nRanks,
                    "FLUXCCL_ADDR", address)));
  }

  @Test
  void shouldFormAJobFromTheEnvironmentOfMpirun() throws Exception {
    assumeTrue(
        Files.isExecutable(Path.of("/usr/bin/mpirun")),
        "no /usr/bin/mpirun here; install Open MPI to run this test");
    int ranks = Rounds.of(2, 4);
    List<String> mpirun =
        List.of("/usr/bin/mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "" + ranks);
    ProcessRank job = start(process("gather").prefix(mpirun));
    assertThat(job.end()).as(job.output()).isZero();
    String all = ranks == 2 ? "r0,r1" : "r0,r1,r2,r3";
    for (int rank = 0; rank < ranks; rank++) {
      assertThat(job.lines())
          .contains("rank " + rank + " local " + rank + "/" + ranks + " got " + all);
    }
  }

  @Test
  @Tag("long")
  void shouldFormAJobOfIndexedPodsIfTheirNamesResolveLater() throws Exception {
    Path names = Files.writeString(folder.resolve("names"), "127.0.0.1 localhost\n");
    // Java would otherwise cache an unknown name for 10 s.
    Path security =
        Files.writeString(folder.resolve("security"), "networkaddress.cache.negative.ttl=0\n");
    String options = "-Djdk.net.hosts.file=" + names + " -Djava.security.properties=" + security;
    for (int index = 0; index < 3; index++) {
      start(
          process("gather")
              .variables(
                  Map.of(
                      "JOB_COMPLETION_INDEX",
                      "" + index,
                      "FLUXCCL_NRANKS",
                      "3",
                      "HOSTNAME",
                      "train-" + index,
                      "FLUXCCL_SECRET",
                      "a secret of the job",
                      "JDK_JAVA_OPTIONS",
                      options)));
    }
    for (ProcessRank pod : processes) {
      pod.awaitLineWith("address=train-0.train:29500: the host is unknown, so far");
    }
    // An address of its own, as a pod has, so that other programs may have the port.
    long pid = ProcessHandle.current().pid();
    String address = "127.%d.%d.%d".formatted(1 + pid % 250, pid / 250 % 250, 1 + pid / 62500);
    Files.writeString(names, "127.0.0.1 localhost\n" + address + " train-0.train\n");
    for (int index = 0; index < 3; index++) {
      ProcessRank pod = processes.get(index);
      assertThat(pod.end()).as(pod.output()).isZero();
      assertThat(pod.last("rank " + index)).endsWith("got r0,r1,r2");
    }
  }

  @Test
  void shouldNameASuspendedRankUntilItResumes() throws Exception {
    String address = "127.0.0.1:" + Ports.reserved();
    ProcessRank stopped = startRank(1, 3, address);
    startRank(2, 3, address);
    try (TcpBootstrap rank0 = TcpBootstrap.create(0, 3, BootstrapOptions.defaults())) {
      await(rank0.initialize(address));
      await(rank0.allGather(new byte[0], soon()));
      List<OptionalInt> silence = new CopyOnWriteArrayList<>();
      rank0.silence().subscribe(silence::add);
      stopped.stop();
      Awaitility.await().until(() -> rank0.unresponsiveRank().equals(OptionalInt.of(1)));
      // The receive waits for rank 2, which answers; the error names rank 1, which does not.
      FluxCclException late = failureOf(rank0.recv(2, 1, in(50)));
      assertThat(late).isInstanceOf(Timeout.class).hasMessageContaining("heartbeat");
      assertThat(late.rank()).isEqualTo(1);
      assertThat(failureOf(rank0.barrier(in(50))).rank()).isEqualTo(1);
      // This process is suspended; rank 1, which was silent before, gets no extra time.
      await(runAsync(() -> LockSupport.parkNanos(MILLISECONDS.toNanos(1000)), rank0.loop));
      await(runAsync(() -> {}, delayedExecutor(500, MILLISECONDS, rank0.loop)));
      assertThat(rank0.unresponsiveRank()).hasValue(1);
      stopped.resume();
      Awaitility.await().until(rank0::unresponsiveRank, OptionalInt::isEmpty);
      assertThat(rank0.failure()).isNotDone();
      Awaitility.await()
          .untilAsserted(
              () ->
                  assertThat(silence)
                      .containsSubsequence(
                          OptionalInt.empty(), OptionalInt.of(1), OptionalInt.empty()));
      stopped.kill();
      FluxCclException reason = await(rank0.failure().copy());
      assertThat(reason).isInstanceOf(RemoteFailure.class);
      assertThat(reason.rank()).isEqualTo(1);
    }
  }

  @Test
  void shouldEndTheJobWhenARankIsSilentForTooLong() throws Exception {
    String address = "127.0.0.1:" + Ports.reserved();
    ProcessRank stopped = startRank(1, 2, address);
    BootstrapOptions options =
        BootstrapOptions.builder().livenessTimeout(Duration.ofMillis(500)).build();
    try (TcpBootstrap rank0 = TcpBootstrap.create(0, 2, options)) {
      await(rank0.initialize(address));
      await(rank0.allGather(new byte[0], soon()));
      stopped.stop();
      FluxCclException reason = await(rank0.failure().copy());
      assertThat(reason)
          .isInstanceOf(Timeout.class)
          .hasMessageContaining("rank 1 has answered no heartbeat for 500 ms");
      assertThat(reason.rank()).isEqualTo(1);
    }
  }

  @Test
  void shouldNameAStoppedRootAndThenItsDeath() throws Exception {
    String address = "127.0.0.1:" + Ports.reserved();
    ProcessRank root = startRank(0, 2, address);
    try (TcpBootstrap rank1 = TcpBootstrap.create(1, 2, BootstrapOptions.defaults())) {
      await(rank1.initialize(address));
      await(rank1.allGather(new byte[0], soon()));
      assertThat(rank1.unresponsiveRank()).isEmpty();
      root.stop();
      Awaitility.await().until(() -> rank1.unresponsiveRank().equals(OptionalInt.of(0)));
      root.kill();
      FluxCclException reason = await(rank1.failure().copy());
      assertThat(reason).isInstanceOf(RemoteFailure.class);
      assertThat(reason.rank()).isEqualTo(0);
    }
  }

  @Test
  void shouldHostTheRootForOtherProcessesUntilTheLastHasLeft() throws Exception {
    UniqueId id = UniqueId.create();
    Map<String, String> job =
        Map.of("FLUXCCL_RANK", "0", "FLUXCCL_NRANKS", "1", "FLUXCCL_UNIQUE_ID", id.toBase64());
    assertThat(start(process("gather").variables(job)).end()).isZero();
    // After its last rank has left, the root has ended, too.
    Awaitility.await()
        .ignoreExceptions()
        .until(
            () -> {
              try (java.net.Socket socket = new java.net.Socket()) {
                socket.connect(id.address(), 500);
                return false;
              } catch (java.net.ConnectException gone) {
                return true;
              }
            });
  }
}
