// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.docs;

import static org.assertj.core.api.Assertions.assertThat;
import static org.awaitility.Awaitility.await;

import io.fluxccl.Aborted;
import io.fluxccl.DataType;
import io.fluxccl.ReduceOp;
import io.fluxccl.collective.CapturedPipeline;
import io.fluxccl.collective.Collective;
import io.fluxccl.collective.CollectiveCall;
import io.fluxccl.collective.Collectives;
import io.fluxccl.collective.Pipeline;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.group.RankGroup;
import io.fluxccl.trace.CallRecord;
import io.fluxccl.trace.JobDump;
import io.fluxccl.trace.Outcome;
import io.fluxccl.trace.TraceFile;
import io.fluxccl.transport.Transport;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.stream.Stream;
import jdk.jfr.Recording;
import jdk.jfr.consumer.RecordedEvent;
import jdk.jfr.consumer.RecordingFile;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** The code of docs/17-seeing-inside.md. */
@Timeout(60)
@Tag("jdk")
class SeeingInsideTest {
  private static final int COUNT = 4096;

  private List<RankGroup> groups;
  private final List<DeviceBuffer> buffers = new ArrayList<>();

  @BeforeEach
  void open() {
    groups = RankGroup.local(2);
    groups.forEach(group -> buffers.add(group.device().allocate(COUNT * Float.BYTES)));
  }

  @AfterEach
  void close() {
    RankGroup.closeAll(groups);
    buffers.forEach(DeviceBuffer::close);
  }

  private CompletableFuture<Void> allReduce(int rank) {
    return groups
        .get(rank)
        .collectives()
        .allReduce(buffers.get(rank), DataType.FLOAT32, ReduceOp.SUM)
        .toFuture();
  }

  private void allReduceByAll() {
    List<CompletableFuture<Void>> both = List.of(allReduce(0), allReduce(1));
    both.forEach(CompletableFuture::join);
  }

  private List<CallRecord> calls(int rank) {
    return groups.get(rank).communicator().recorder().calls();
  }

  private void awaitEnds() {
    await()
        .until(
            () ->
                Stream.of(0, 1)
                    .flatMap(rank -> calls(rank).stream())
                    .noneMatch(CallRecord::isInFlight));
  }

  @Test
  void shouldReportWhichRankIsWaitedFor() {
    RankGroup group = groups.get(0);
    allReduceByAll();
    CompletableFuture<Void> waiting = allReduce(0);
    await().until(() -> !group.dump().block().blamed().isEmpty());

    JobDump dump = group.dump().block();
    System.out.println(dump.verdict()); // rank 1 has not begun all-reduce 2 of lane 0, in which ...
    List<Integer> blamed = dump.blamed(); // [1]

    assertThat(dump.verdict())
        .matches(
            "rank 1 has not begun all-reduce 2 of lane 0, in which rank 0 waits for [\\d.]+ m?s");
    assertThat(blamed).containsExactly(1);
    allReduce(1).join();
    waiting.join();
    assertThat(group.dump().block().blamed()).isEmpty();
  }

  @Test
  void shouldRecordEachCallWithItsAlgorithmAndItsEnd() {
    allReduceByAll();
    allReduceByAll();
    awaitEnds();
    CallRecord second = calls(0).get(1);
    Collectives collectives = groups.get(0).collectives();
    assertThat(second.label()).isEqualTo("all-reduce 2");
    assertThat(second.bytes()).isEqualTo(COUNT * Float.BYTES);
    assertThat(second.type()).isEqualTo("float");
    assertThat(
            collectives.algorithmsFor(
                CollectiveCall.allReduce(
                    buffers.get(0), buffers.get(0), COUNT, DataType.FLOAT32, ReduceOp.SUM)))
        .contains(second.algorithm());
    assertThat(second.outcome()).isEqualTo(Outcome.DONE);
    assertThat(second.begunNs()).isBetween(second.enqueuedNs(), second.endedNs());
  }

  @Test
  void shouldDistinguishFailedFromDetachedCalls() {
    groups.get(0).collectives().barrier().subscribe().dispose();
    assertThat(calls(0).get(0).label()).isEqualTo("barrier 1");
    groups.get(1).collectives().barrier().block();
    await().until(() -> calls(0).get(0).outcome() == Outcome.DETACHED);
    CompletableFuture<Void> fails = allReduce(0);
    groups.get(1).communicator().abort(Aborted.of(1, "as the test wants"));
    await().until(fails::isDone);
    await().until(() -> calls(0).get(1).outcome() == Outcome.FAILED);
    assertThat(groups.get(0).dump().block().failure().orElseThrow()).contains("as the test wants");
  }

  @Test
  void shouldShowAPipelineInATrace(@TempDir Path folder) throws IOException {
    List<CompletableFuture<Void>> runs = new ArrayList<>();
    for (int rank = 0; rank < 2; rank++) {
      DeviceBuffer x = buffers.get(rank);
      Pipeline pipeline = groups.get(rank).pipeline().allReduce(x, DataType.FLOAT32, ReduceOp.SUM);
      CapturedPipeline captured = pipeline.allReduce(x, DataType.FLOAT32, ReduceOp.MAX).capture();
      runs.add(captured.run().toFuture());
      runs.add(pipeline.barrier().run().toFuture());
    }
    runs.forEach(CompletableFuture::join);
    awaitEnds();

    JobDump dump = groups.get(0).dump().block();
    Path file = folder.resolve("job.json");
    Files.writeString(file, TraceFile.of(List.of(dump))); // open it at ui.perfetto.dev

    String trace = Files.readString(file);
    assertThat(trace.lines().filter(line -> line.contains("\"captured pipeline 1 to 2\"")))
        .hasSize(2);
    assertThat(trace.lines().filter(line -> line.contains("\"pipeline 3 to 4\""))).hasSize(2);
    assertThat(trace.lines().filter(line -> line.contains("\"process_name\""))).hasSize(2);
    assertThat(trace).contains("\"bytes\" : " + 2 * COUNT * Float.BYTES);
  }

  @Test
  void shouldMakeEventsForFlightRecorder(@TempDir Path folder) throws IOException {
    Path file = folder.resolve("job.jfr");
    allReduceByAll(); // before the recording: no event
    try (Recording recording = new Recording()) {
      recording.enable("io.fluxccl.Call");
      recording.enable("io.fluxccl.Failure");
      recording.start();
      allReduceByAll();
      awaitEnds();
      groups.get(1).communicator().abort(Aborted.of(1, "as the test wants"));
      await()
          .atMost(Duration.ofSeconds(20))
          .until(
              () -> {
                recording.dump(file);
                return events(file, "io.fluxccl.Failure").size() == 2;
              });
    }
    List<RecordedEvent> calls = events(file, "io.fluxccl.Call");
    assertThat(calls).extracting(event -> event.getInt("rank")).containsExactlyInAnyOrder(0, 1);
    for (RecordedEvent call : calls) {
      assertThat(call.getString("kind")).isEqualTo(Collective.ALL_REDUCE.label());
      assertThat(call.getLong("bytes")).isEqualTo(COUNT * Float.BYTES);
      assertThat(call.getString("outcome")).isEqualTo("DONE");
      assertThat(call.getString("algorithm")).isEqualTo(calls(0).get(1).algorithm());
      assertThat(call.getDuration("time")).isPositive();
    }
    assertThat(events(file, "io.fluxccl.Failure"))
        .allSatisfy(
            failure -> {
              assertThat(failure.getInt("blamed")).isEqualTo(1);
              assertThat(failure.getString("code")).isEqualTo("ABORTED");
              assertThat(failure.getString("message")).contains("as the test wants");
            })
        .extracting(failure -> failure.getInt("rank"))
        .containsExactlyInAnyOrder(0, 1);
  }

  @Test
  void shouldMakeAnEventOfEachSetUpWithAPeer(@TempDir Path folder) throws IOException {
    Path file = folder.resolve("setup.jfr");
    try (Recording recording = new Recording()) {
      recording.enable("io.fluxccl.SetUp");
      recording.start();
      List<CompletableFuture<Void>> setUps = new ArrayList<>();
      for (int rank = 0; rank < 2; rank++) {
        groups.get(rank).communicator().connectOnSetup(1 - rank, 5, Transport.SHM);
        setUps.add(groups.get(rank).communicator().setup());
      }
      setUps.forEach(CompletableFuture::join);
      recording.dump(file);
    }
    List<RecordedEvent> setUps = events(file, "io.fluxccl.SetUp");
    for (int rank = 0; rank < 2; rank++) {
      int own = rank;
      assertThat(setUps)
          .anyMatch(event -> event.getInt("rank") == own && event.getInt("peer") == 1 - own);
    }
    assertThat(setUps).allMatch(event -> !event.getDuration("time").isNegative());
  }

  private static List<RecordedEvent> events(Path file, String name) throws IOException {
    return RecordingFile.readAllEvents(file).stream()
        .filter(event -> event.getEventType().getName().equals(name))
        .toList();
  }
}
