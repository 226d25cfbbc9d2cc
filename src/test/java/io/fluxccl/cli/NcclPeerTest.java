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
import java.util.concurrent.ConcurrentHashMap;
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
    void run(LocalRank rank, MeasuredLibrary peer, DeviceBuffer input, DeviceBuffer output)
        throws Exception;
  }

  private void withPeers(Duration limit, Body body) {
    withWays(limit, (rank, ways, in, out) -> body.run(rank, ways.get(0), in, out));
  }

  private interface BodyOfWays {
    void run(LocalRank rank, List<MeasuredLibrary> ways, DeviceBuffer in, DeviceBuffer out)
        throws Exception;
  }

  private void withWays(Duration limit, BodyOfWays body) {
    withWays(rank -> library, limit, body);
  }

  private static void withWays(IntFunction<Path> libraries, Duration limit, BodyOfWays body) {
    try (LocalRanks ranks = LocalRanks.onGpus(2)) {
      ranks.run(
          rank -> {
            Map<String, String> environment =
                Map.of(NcclLibrary.VARIABLE, libraries.apply(rank.rank()).toString());
            try (DeviceBuffer input = rank.device().allocate(4096);
                DeviceBuffer output = rank.device().allocate(4096)) {
              CallBuffers buffers =
                  new CallBuffers(input, output, () -> input, null, rank.rank(), 2);
              rank.awaitAll();
              try (NcclPeer peer = new NcclPeer(rank.communicator(), buffers, environment, limit)) {
                body.run(rank, peer.ways(), input, output);
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
            "ncclCommWindowRegister 4096 1",
            "ncclCommWindowRegister 4096 1",
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
            "ncclCommWindowDeregister",
            "ncclCommWindowDeregister",
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
  void shouldRunCollectivesInWindowsOutsideTheRanksBuffers() throws IOException {
    long[] addresses = new long[2];
    withWays(
        LIMIT,
        (rank, ways, input, output) -> {
          MeasuredLibrary windows = ways.get(1);
          assertThat(windows.name()).isEqualTo("NCCL 2.28.9 windows");
          PerfCase shape = shape(Collective.ALL_GATHER);
          assertThat(windows.supports(shape, BufferAliasing.IN_PLACE)).isTrue();
          PerfCase other = shape(Collective.ALL_TO_ALL);
          assertThat(windows.supports(other, BufferAliasing.OUT_OF_PLACE)).isFalse();
          if (rank.rank() == 0) {
            addresses[0] = input.address();
            addresses[1] = output.address();
          }
          run(windows.prepare(shape, BufferAliasing.OUT_OF_PLACE, 1, false), 1);
        });
    assertThat(calls(addresses[0], addresses[1]))
        .filteredOn(call -> call.startsWith("ncclAllGather"))
        .singleElement()
        .asString()
        .doesNotContain("IN")
        .doesNotContain("OUT");
  }

  @Test
  void shouldMeasureThePlainPathOnlyIfNcclRefusesWindows() throws IOException {
    Files.writeString(Path.of(library + ".mischief"), "ncclCommWindowRegister 5");
    withWays(LIMIT, (rank, ways, input, output) -> assertThat(ways).hasSize(1));
  }

  /** Gives each rank a library of its own, and rank 1 a misbehaving one. */
  private void withMischiefOfRank1(String mischief, Duration limit, BodyOfWays body)
      throws IOException {
    for (int rank = 0; rank < 2; rank++) {
      Files.copy(library, libraryOf(rank));
    }
    Files.writeString(Path.of(libraryOf(1) + ".mischief"), mischief);
    withWays(this::libraryOf, limit, body);
  }

  private Path libraryOf(int rank) {
    return folder.resolve("libnccl" + rank + ".so");
  }

  private List<String> callsOfWindows(int rank) throws IOException {
    return Files.readAllLines(Path.of(libraryOf(rank) + ".log")).stream()
        .filter(line -> line.contains("Window") || line.contains("Mem"))
        .map(line -> line.replaceFirst("^[0-9] ", "").replaceFirst(" .*", ""))
        .toList();
  }

  @Test
  void shouldRegisterNoWindowIfOneRankHasNoMemoryForIt() throws IOException {
    withMischiefOfRank1(
        "ncclMemAlloc 2", LIMIT, (rank, ways, in, out) -> assertThat(ways).hasSize(1));
    assertThat(callsOfWindows(0))
        .containsExactly("ncclMemAlloc", "ncclMemAlloc", "ncclMemFree", "ncclMemFree");
    assertThat(callsOfWindows(1)).containsExactly("ncclMemAlloc");
  }

  /** NCCL registers a window on all ranks at once. */
  @Test
  void shouldRegisterAsManyWindowsOnEveryRankIfOneIsRefused() throws IOException {
    withMischiefOfRank1(
        "ncclCommWindowRegister 2", LIMIT, (rank, ways, in, out) -> assertThat(ways).hasSize(1));
    for (int rank = 0; rank < 2; rank++) {
      assertThat(callsOfWindows(rank))
          .filteredOn("ncclCommWindowRegister"::equals)
          .as("rank %d", rank)
          .hasSize(1);
      assertThat(callsOfWindows(rank)).filteredOn("ncclMemFree"::equals).hasSize(2);
    }
    assertThat(callsOfWindows(0)).contains("ncclCommWindowDeregister");
  }

  @Test
  void shouldEndOnAllRanksIfOneNeverRegistersItsWindow() throws IOException {
    Map<Integer, Throwable> failures = new ConcurrentHashMap<>();
    Files.copy(library, libraryOf(0));
    Files.copy(library, libraryOf(1));
    Files.writeString(Path.of(libraryOf(1) + ".mischief"), "ncclCommWindowRegister hang");
    try (LocalRanks ranks = LocalRanks.onGpus(2)) {
      ranks.run(
          rank -> {
            Map<String, String> environment =
                Map.of(NcclLibrary.VARIABLE, libraryOf(rank.rank()).toString());
            Duration limit = rank.rank() == 1 ? SHORT : LIMIT;
            try (DeviceBuffer input = rank.device().allocate(4096)) {
              CallBuffers buffers =
                  new CallBuffers(input, input, () -> input, null, rank.rank(), 2);
              FluxCclException failure =
                  assertThrows(
                      FluxCclException.class,
                      () -> new NcclPeer(rank.communicator(), buffers, environment, limit),
                      "ncclCommWindowRegister on rank 1 has not returned within 3000 ms");
              failures.put(rank.rank(), failure);
            }
            rank.awaitAll();
          });
    }
    assertThat(failures)
        .hasSize(2)
        .allSatisfy((rank, e) -> assertThat(e).isInstanceOf(Timeout.class));
    for (int rank = 0; rank < 2; rank++) {
      assertThat(Files.readString(Path.of(libraryOf(rank) + ".log"))).contains("ncclCommAbort");
    }
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
