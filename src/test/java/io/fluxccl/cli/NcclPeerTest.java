// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import static io.fluxccl.testing.FailureAssertions.assertFails;
import static io.fluxccl.testing.FailureAssertions.assertRefused;
import static io.fluxccl.testing.FailureAssertions.assertThrows;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.DataType;
import io.fluxccl.DeviceFailure;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.ReduceOp;
import io.fluxccl.Timeout;
import io.fluxccl.cli.MeasuredLibrary.PreparedCalls;
import io.fluxccl.collective.Collective;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.testing.FakeCuda;
import io.fluxccl.testing.NativePrograms;
import io.fluxccl.testing.RequiresNativeLibrary;
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.testkit.LocalRanks;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.function.IntFunction;
import java.util.stream.Stream;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Calls that two ranks on the fake driver's GPUs make to a fake NCCL, which records them. */
@FakeCuda
@RequiresNativeLibrary
class NcclPeerTest {
  private static final Duration LIMIT = Duration.ofSeconds(30);

  /** Timeout of calls that must not hang; long enough for a machine with little CPU time. */
  private static final Duration SHORT = Duration.ofSeconds(3);

  @TempDir private Path folder;

  private Path library;

  @BeforeEach
  void build() throws Exception {
    library = NativePrograms.sharedLibrary("nccl_echo.c", folder, "libnccl.so.2");
  }

  private interface Body {
    void run(LocalRank rank, NcclPeer peer, DeviceBuffer input, DeviceBuffer output)
        throws Exception;
  }

  private void withPeers(Duration limit, Body body) {
    Map<String, String> environment = Map.of(NcclLibrary.VARIABLE, library.toString());
    try (LocalRanks ranks = LocalRanks.onGpus(2)) {
      ranks.run(
          rank -> {
            try (DeviceBuffer input = rank.device().allocate(4096);
                DeviceBuffer output = rank.device().allocate(4096)) {
              CallBuffers buffers =
                  new CallBuffers(input, output, () -> input, null, rank.rank(), 2);
              rank.awaitAll();
              try (NcclPeer peer = new NcclPeer(rank.communicator(), buffers, environment, limit)) {
                body.run(rank, peer, input, output);
              }
            }
          });
    }
  }

  private static PerfCase shape(Collective collective) {
    ReduceOp op = collective.reduces() ? ReduceOp.MAX : null;
    long count = collective == Collective.BARRIER ? 0 : 8;
    return new PerfCase(collective, count, DataType.FLOAT16, op, collective.hasRoot() ? 1 : 0);
  }

  /** The calls of rank 0, without their streams, with IN and OUT for its buffers. */
  private List<String> calls(long input, long output) throws IOException {
    return Files.readAllLines(Path.of(library + ".log")).stream()
        .filter(line -> line.startsWith("0 "))
        .map(line -> line.substring(2).replaceFirst(" on 0x[0-9a-f]+$", ""))
        .map(line -> line.replace("0x" + Long.toHexString(input), "IN"))
        .map(line -> line.replace("0x" + Long.toHexString(output), "OUT"))
        .toList();
  }

  private static void run(PreparedCalls work, int times) {
    try (work) {
      work.run(times).join();
    }
  }

  @Test
  void shouldGiveNcclTheArgumentsOfEachCollective() throws IOException {
    long[] addresses = new long[2];
    withPeers(
        LIMIT,
        (rank, peer, input, output) -> {
          if (rank.rank() == 0) {
            addresses[0] = input.address();
            addresses[1] = output.address();
          }
          assertThat(peer.name()).isEqualTo("NCCL 2.28.9");
          for (Collective collective : Collective.plain()) {
            run(peer.prepare(shape(collective), BufferAliasing.OUT_OF_PLACE, 1, false), 1);
          }
        });
    assertThat(calls(addresses[0], addresses[1]))
        .filteredOn(call -> !call.startsWith("ncclAllReduce 0x"))
        .containsExactly(
            "ncclCommInitRank 2 id=7..7",
            "ncclAllReduce IN OUT 8 6 2",
            "ncclAllGather IN OUT 8 6",
            "ncclReduceScatter IN OUT 8 6 2",
            "ncclBroadcast IN OUT 8 6 1",
            "ncclReduce IN OUT 8 6 2 1",
            // all-to-all
            "ncclSend IN 8 6 to 0",
            "ncclRecv OUT 8 6 from 0",
            "ncclSend 0x" + Long.toHexString(addresses[0] + 16) + " 8 6 to 1",
            "ncclRecv 0x" + Long.toHexString(addresses[1] + 16) + " 8 6 from 1",
            // all-to-all-v: nothing for itself, twice the mean for the other
            "ncclSend IN 16 6 to 1",
            "ncclRecv OUT 16 6 from 1",
            // gather, to the other rank
            "ncclSend IN 8 6 to 1",
            // scatter, from the other rank
            "ncclRecv OUT 8 6 from 1",
            // send-receive
            "ncclSend IN 8 6 to 1",
            "ncclRecv OUT 8 6 from 1",
            "ncclCommDestroy");
    // The barrier.
    assertThat(calls(addresses[0], addresses[1]))
        .filteredOn(call -> call.startsWith("ncclAllReduce 0x"))
        .hasSize(1)
        .first()
        .asString()
        .endsWith(" 1 1 0");
  }

  @Test
  void shouldCallNcclAgainForEachRunUnlessRecorded() throws IOException {
    withPeers(
        LIMIT,
        (rank, peer, input, output) -> {
          PerfCase shape = shape(Collective.ALL_GATHER);
          run(peer.prepare(shape, BufferAliasing.IN_PLACE, 3, false), 2);
          run(peer.prepare(shape, BufferAliasing.IN_PLACE, 3, true), 5);
        });

    // Two runs of three; then one to connect and three recorded.
    assertThat(calls(1, 1)).filteredOn(call -> call.startsWith("ncclAllGather")).hasSize(10);
  }

  private void assertCallFails(
      String mischief, Duration limit, Collective collective, String... message)
      throws IOException {
    Files.writeString(Path.of(library + ".mischief"), mischief);
    withPeers(
        limit,
        (rank, peer, input, output) -> {
          PreparedCalls work =
              peer.prepare(shape(collective), BufferAliasing.OUT_OF_PLACE, 1, false);
          rank.awaitAll();
          assertFails(work.run(1), FluxCclException.class, message);
          if (limit == SHORT) {
            assertThat(rank.communicator().failure()).isInstanceOf(Timeout.class);
          }
        });
  }

  private static void assertJoinFails(
      IntFunction<Path> libraries,
      Duration limit,
      Class<? extends FluxCclException> type,
      String... message) {
    try (LocalRanks ranks = LocalRanks.onGpus(2)) {
      ranks.run(
          rank -> {
            String own = libraries.apply(rank.rank()).toString();
            Map<String, String> environment = Map.of(NcclLibrary.VARIABLE, own);
            rank.awaitAll();
            String[] parts =
                Stream.of(message).map(each -> each.formatted(rank.rank())).toArray(String[]::new);
            assertThrows(
                type, () -> NcclCommunicator.join(rank.communicator(), environment, limit), parts);
          });
    }
  }

  @Test
  void shouldReportTheErrorOfNcclIfACallFails() throws IOException {
    assertCallFails(
        "ncclReduce 3",
        LIMIT,
        Collective.REDUCE,
        "NCCL's reduce of 8 half (max) on rank",
        "internal error - please report (3)");
    assertThat(calls(1, 1)).contains("ncclCommAbort").doesNotContain("ncclCommDestroy");
  }

  @Test
  void shouldAbortNcclWhenACallDoesNotReturnInTime() throws IOException {
    String message = "not done within 3000 ms; NCCL was aborted";
    assertCallFails("ncclAllGather hang", SHORT, Collective.ALL_GATHER, message);
    assertThat(calls(1, 1)).contains("ncclCommAbort");
  }

  @Test
  void shouldGiveUpWhenNcclNeverFindsTheOtherRanks() throws IOException {
    Files.writeString(Path.of(library + ".mischief"), "ncclCommInitRank hang");
    assertJoinFails(any -> library, SHORT, Timeout.class, "ncclCommInitRank on rank %d");
  }

  @Test
  void shouldRefuseOnAllRanksWhenOneHasNoNccl() {
    assertJoinFails(
        rank -> rank == 0 ? library : folder.resolve("missing.so"),
        LIMIT,
        InvalidUsage.class,
        "there is no NCCL to compare with; set FLUXCCL_NCCL",
        "missing.so");
  }

  @Test
  void shouldRefuseALibraryThatIsNoNccl() throws Exception {
    Path other = NativePrograms.sharedLibrary("nvrtc_echo.c", folder, "libother.so");

    Map<String, String> environment = Map.of(NcclLibrary.VARIABLE, other.toString());
    assertRefused(() -> NcclLibrary.open(environment), "ncclGetVersion");
  }

  @Test
  void shouldFindNcclAmongThePackagesOfThePythonOnThePath() throws Exception {
    Path python = folder.resolve("venv/bin/python3");
    NativePrograms.script(python, "exit 1");
    Path packaged = folder.resolve("venv/lib/python3.12/site-packages/nvidia/nccl/lib");
    Files.createDirectories(packaged);
    Files.copy(library, packaged.resolve("libnccl.so.2"));

    NcclLibrary found = NcclLibrary.open(Map.of("PATH", python.getParent().toString()));

    assertThat(found.path()).isEqualTo(packaged.resolve("libnccl.so.2").toString());
    String message = "ncclSomething failed: internal error";
    assertThrows(DeviceFailure.class, () -> found.check(3, "ncclSomething"), message);
  }
}
