// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.group;

import static org.assertj.core.api.Assertions.assertThat;
import static org.awaitility.Awaitility.await;

import ch.qos.logback.classic.Level;
import ch.qos.logback.classic.Logger;
import ch.qos.logback.classic.spi.ILoggingEvent;
import ch.qos.logback.core.read.ListAppender;
import io.fluxccl.Aborted;
import io.fluxccl.ReduceOp;
import io.fluxccl.bootstrap.JobSecret;
import io.fluxccl.device.IntView;
import io.fluxccl.testing.Ports;
import io.fluxccl.testing.TestJvms;
import io.fluxccl.testkit.FaultKind;
import io.fluxccl.testkit.FaultPlan;
import io.fluxccl.testkit.LocalRanks;
import io.fluxccl.testkit.LocalRanksOptions;
import io.fluxccl.testkit.ProcessRank;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import org.slf4j.LoggerFactory;

/** Log lines of ranks in this JVM when a rank in another process dies, and when all leave. */
@Tag("alone") // excludes lines of other tests
@Tag("multiprocess")
@Timeout(180)
class FailureLogTest {
  private static final int RANKS = 3;
  private static final Duration LIMIT = Duration.ofSeconds(60);

  private final Logger logger = (Logger) LoggerFactory.getLogger("io.fluxccl");
  private final Level level = logger.getLevel();
  private final ListAppender<ILoggingEvent> lines = new ListAppender<>();

  private String address;
  private final JobSecret secret = JobSecret.random();

  @BeforeEach
  void listen() throws IOException {
    address = "127.0.0.1:" + Ports.reserved();
    lines.start();
    logger.addAppender(lines);
    logger.setLevel(Level.INFO);
  }

  @AfterEach
  void end() {
    logger.detachAppender(lines);
    logger.setLevel(level);
  }

  private List<String> warnings() {
    return List.copyOf(lines.list).stream()
        .filter(line -> line.getLevel().isGreaterOrEqual(Level.WARN))
        .map(ILoggingEvent::getFormattedMessage)
        .toList();
  }

  private CompletableFuture<RankGroup> join(int rank) {
    return RankGroup.join(
        JoinOptions.of(rank, RANKS)
            .withAddress(address)
            .withSecret(secret)
            .withDevice(DeviceChoice.HOST));
  }

  /** A rank that does nothing once it has joined. */
  static final class Victim {
    private Victim() {}

    public static void main(String[] args) throws IOException {
      RankGroup.fromEnvironment().join();
      System.out.println("joined");
      System.in.read();
    }
  }

  /** Rank 0 watches the others. */
  @ParameterizedTest
  @ValueSource(ints = {0, 2})
  void shouldWarnOnceAndNameTheDeadProcessAndTheCall(int victim) throws Exception {
    List<CompletableFuture<RankGroup>> joining = new ArrayList<>();
    Map<String, String> place = Map.of("FLUXCCL_ADDR", address, "FLUXCCL_SECRET", secret.text());
    try (ProcessRank process =
        TestJvms.of(RANKS, Victim.class).variables(place).startRank(victim)) {
      for (int rank = 0; rank < RANKS; rank++) {
        if (rank != victim) {
          joining.add(join(rank));
        }
      }
      List<RankGroup> groups = joining.stream().map(CompletableFuture::join).toList();
      process.awaitLine("joined");
      for (RankGroup group : groups) {
        IntView x = group.device().allocateInts(16);
        group.collectives().allReduce(x, ReduceOp.SUM).subscribe(done -> {}, failed -> {});
      }
      process.kill();
      groups.forEach(group -> assertThat(group.communicator().failed()).succeedsWithin(LIMIT));
      await().until(() -> warnings().size() >= groups.size());
      RankGroup.closeAll(groups);
      String host = Files.readString(Path.of("/proc/sys/kernel/hostname")).strip();
      String dead = "rank " + victim + " (pid " + process.pid() + " on " + host + ")";
      assertThat(warnings())
          .hasSize(groups.size())
          .allSatisfy(
              line ->
                  assertThat(line)
                      .startsWith(dead)
                      .contains("died")
                      .containsPattern("rank \\d of 3 was in all-reduce 1 of 64 bytes"));
    }
  }

  @Test
  void shouldLogNothingWhenAllRanksLeave() {
    List<CompletableFuture<RankGroup>> joining = new ArrayList<>();
    for (int rank = 0; rank < RANKS; rank++) {
      joining.add(join(rank));
    }
    List<RankGroup> groups = joining.stream().map(CompletableFuture::join).toList();
    List<CompletableFuture<Void>> sums = new ArrayList<>();
    for (RankGroup group : groups) {
      IntView x = group.device().allocateInts(16);
      sums.add(group.collectives().allReduce(x, ReduceOp.SUM).toFuture());
    }
    assertThat(sums).allSatisfy(sum -> assertThat(sum).succeedsWithin(LIMIT));
    // Closes the ranks one after the other, as processes do.
    groups.forEach(group -> group.closeAsync());
    RankGroup.closeAll(groups);
    assertThat(lines.list).extracting(ILoggingEvent::getFormattedMessage).isEmpty();
  }

  @Test
  void shouldWarnOnceOfAnAbortAlsoInAJobWithSubGroups() {
    List<RankGroup> groups = RankGroup.local(2, JoinOptions.of(0, 1).withDevice(DeviceChoice.HOST));
    groups.stream()
        .map(group -> group.split("part", 0, 0))
        .toList()
        .forEach(CompletableFuture::join);
    groups.get(1).communicator().abort(Aborted.of(1, "rank 1 has seen enough"));
    groups.forEach(group -> assertThat(group.communicator().failed()).succeedsWithin(LIMIT));
    RankGroup.closeAll(groups);
    assertThat(warnings()).hasSize(2).allMatch(line -> line.equals("rank 1 has seen enough"));
  }

  @Test
  void shouldWarnOnceAMinuteOfLinksThatAreReplaced() {
    FaultPlan plan = FaultPlan.seeded(7, RANKS, FaultKind.CUT, FaultKind.CUT, FaultKind.CUT);
    LocalRanksOptions options = LocalRanksOptions.DEFAULT.withFaults(plan);
    try (LocalRanks ranks = LocalRanks.ofHosts(RANKS, 1, options)) {
      ranks.run(
          rank -> {
            try (IntView x = rank.device().allocateInts(16)) {
              for (int i = 0; i < 20; i++) {
                rank.collectives().allReduce(x, ReduceOp.MAX).block(LIMIT);
              }
            }
          });
    }
    assertThat(warnings()).hasSizeLessThanOrEqualTo(1).allMatch(line -> line.contains("was lost"));
  }
}
