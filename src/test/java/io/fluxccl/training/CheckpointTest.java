// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.training;

import static io.fluxccl.testing.FailureAssertions.assertRefused;
import static io.fluxccl.testing.Outcomes.completes;
import static io.fluxccl.testing.Outcomes.fails;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.InvalidUsage;
import io.fluxccl.concurrent.Closing;
import io.fluxccl.device.ByteView;
import io.fluxccl.device.DeviceView;
import io.fluxccl.device.FloatView;
import io.fluxccl.device.host.HostDevice;
import io.fluxccl.testing.OnRanks;
import io.fluxccl.testkit.LocalRank;
import java.io.IOException;
import java.nio.file.FileSystem;
import java.nio.file.FileSystems;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;
import reactor.test.StepVerifier;

class CheckpointTest {
  private static final Duration LONG = Duration.ofSeconds(60);
  private static final int LARGE = 400_000;

  @TempDir private Path folder;
  private HostDevice device;
  private final Map<String, DeviceView> state = new LinkedHashMap<>();
  private FloatView weight;

  @BeforeEach
  void create() {
    device = HostDevice.create();
    weight = device.allocateFloats(LARGE);
    state.put("weight", weight);
    state.put("steps", ByteView.of(device.allocate(13)));
  }

  @AfterEach
  void close() {
    Closing.all(state.values());
    device.close();
  }

  private Checkpoint checkpoint() {
    return Checkpoint.in(folder.resolve("of-a-job"), 2);
  }

  private Path file(long step) {
    return folder.resolve("of-a-job/step-" + step + ".checkpoint");
  }

  private void write(long step) {
    weight.put(LARGE - 1, step);
    completes(checkpoint().write(step, state));
  }

  private void assertNewest(long step) {
    weight.put(LARGE - 1, -1);
    StepVerifier.create(checkpoint().newest().flatMap(found -> checkpoint().read(found, state)))
        .expectNext(step)
        .expectComplete()
        .verify(LONG);
    assertThat(weight.get(LARGE - 1)).isEqualTo(step);
  }

  private List<String> files() throws IOException {
    try (Stream<Path> files = Files.list(folder.resolve("of-a-job"))) {
      return files.map(file -> file.getFileName().toString()).sorted().toList();
    }
  }

  @Test
  void shouldReadTheNewestAndKeepAFew() throws IOException {
    StepVerifier.create(checkpoint().newest()).expectComplete().verify(LONG);
    for (long step = 8; step < 12; step++) {
      write(step);
    }
    assertThat(files()).containsExactly("step-10.checkpoint", "step-11.checkpoint");
    assertNewest(11);
  }

  @Test
  void shouldDeleteTheFilesOfLaterStepsAfterAWriteOfAnEarlierOne() throws IOException {
    write(10);
    write(20);
    write(30);
    write(11); // training continued from step 10 of another folder
    assertThat(files()).containsExactly("step-11.checkpoint");
    assertNewest(11);
  }

  @Test
  void shouldIgnoreFilesThatItNeverWrites() throws IOException {
    write(1);
    Files.write(file(2), new byte[8]); // the checksum of nothing is 0
    for (String step : List.of("9999999999999999999", "03")) {
      Files.write(folder.resolve("of-a-job/step-" + step + ".checkpoint"), new byte[40]);
    }
    assertNewest(1);
    fails(checkpoint().read(2, state), InvalidUsage.class, "step-2.checkpoint", "damaged");
    write(3);
    assertNewest(3);
  }

  @Test
  void shouldIgnoreAFileThatWasNotFinishedAndDeleteItLater() throws IOException {
    write(1);
    Files.writeString(folder.resolve("of-a-job/step-2.checkpoint.unfinished"), "half of it");
    assertNewest(1);
    write(2);
    assertThat(files()).containsExactly("step-1.checkpoint", "step-2.checkpoint");
  }

  @Test
  void shouldReadAnEarlierFileIfTheNewestIsDamaged() throws IOException {
    write(1);
    write(2);
    byte[] bytes = Files.readAllBytes(file(2));
    bytes[bytes.length / 2] ^= 1;
    Files.write(file(2), bytes);
    assertNewest(1);
    fails(checkpoint().read(2, state), InvalidUsage.class, "step-2.checkpoint", "damaged");
    Files.write(file(2), new byte[5]);
    assertNewest(1);
  }

  @Test
  void shouldRefuseAFileOfAnotherState() {
    write(3);
    String file = "step-3.checkpoint";
    state.put("bias", device.allocateFloats(1));
    fails(checkpoint().read(3, state), InvalidUsage.class, file, "entries=2, expected 3");
    state.remove("bias").close();
    state.put("steps", ByteView.of(device.allocate(14))).close();
    fails(checkpoint().read(3, state), InvalidUsage.class, file, "size of steps=13, expected 14");
    assertThat(weight.get(LARGE - 1)).isEqualTo(3);
    fails(checkpoint().read(4, state), InvalidUsage.class, "step-4.checkpoint");
    fails(checkpoint().write(-1, state), InvalidUsage.class, "step=-1");
    assertRefused(() -> Checkpoint.in(folder, 0), "kept=0");
  }

  @Test
  void shouldNameAFolderThatCanNotBeWritten() throws IOException {
    Files.writeString(folder.resolve("of-a-job"), "a file");
    fails(checkpoint().write(1, state), InvalidUsage.class, "of-a-job", "check the folder");
    fails(checkpoint().newest(), InvalidUsage.class, "newest", "of-a-job", "check the folder");
    Mono<Long> below = Checkpoint.in(folder.resolve("of-a-job/rank-0"), 1).newest();
    fails(below, InvalidUsage.class, "of-a-job", "check the folder");
  }

  @Test
  void shouldWriteCompleteFilesIfWritesOverlap() throws IOException {
    Checkpoint checkpoint = Checkpoint.in(folder.resolve("of-a-job"), 1);
    for (int round = 0; round < 5; round++) {
      completes(Flux.range(1, 8).flatMap(step -> checkpoint.write(step % 2, state)).then());
      assertThat(files()).hasSize(1);
      StepVerifier.create(checkpoint.newest().flatMap(found -> checkpoint.read(found, state)))
          .expectNextCount(1)
          .expectComplete()
          .verify(LONG);
    }
  }

  @Test
  @OnRanks(4)
  void shouldFailToAgreeOnEveryRankIfOneCanNotReadItsFolder(LocalRank rank) throws IOException {
    Path own = folder.resolve("rank-" + rank.rank());
    if (rank.rank() == 1) {
      try (FileSystem gone =
          FileSystems.newFileSystem(folder.resolve("gone.zip"), Map.of("create", "true"))) {
        own = gone.getPath("/checkpoints");
      }
    }
    Mono<OptionalLong> agreed = Checkpoint.in(own, 1).agree(rank);
    fails(agreed, InvalidUsage.class, "rank 1", "/checkpoints", "check the folder");
    rank.awaitAll();
  }

  @Test
  @OnRanks(4)
  void shouldAgreeOnTheNewestStepThatAllRanksHave(LocalRank rank) throws IOException {
    Checkpoint own = Checkpoint.in(folder.resolve("rank-" + rank.rank()), 3);
    Map<String, DeviceView> one = Map.of("x", rank.device().allocateFloats(5));
    StepVerifier.create(own.agree(rank))
        .expectNext(OptionalLong.empty())
        .expectComplete()
        .verify(LONG);
    for (long step = 10; step <= (rank.rank() == 2 ? 12 : 13); step++) {
      completes(own.write(step, one)); // rank 2 died before it wrote step 13
    }
    if (rank.rank() == 1) {
      Files.write(folder.resolve("rank-1/step-12.checkpoint"), new byte[100]);
    }
    StepVerifier.create(own.agree(rank))
        .expectNext(OptionalLong.of(11))
        .expectComplete()
        .verify(LONG);
    rank.awaitAll();
    Closing.all(one.values());
  }
}
