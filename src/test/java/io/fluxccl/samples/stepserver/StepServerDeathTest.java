// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.stepserver;

import static org.assertj.core.api.Assertions.assertThat;
import static org.awaitility.Awaitility.await;

import io.fluxccl.group.DeviceChoice;
import io.fluxccl.group.JoinOptions;
import io.fluxccl.group.RankGroup;
import io.fluxccl.testing.TestJvms;
import io.fluxccl.testkit.ProcessRank;
import io.fluxccl.testkit.ProcessRanks;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Rank 0 in this JVM; rank 1 is a process that is really killed. */
@Tag("multiprocess")
@Timeout(180)
class StepServerDeathTest {
  private static final Duration LONG = Duration.ofSeconds(60);

  private final ProcessRanks.Builder job = TestJvms.of(2, StepServer.class, "0");
  private final List<ProcessRank> processes = new ArrayList<>();

  @AfterEach
  void kill() {
    processes.forEach(ProcessRank::close);
  }

  private ProcessRank startFollower() {
    processes.add(job.startRank(1));
    return processes.get(processes.size() - 1);
  }

  @Test
  void shouldServeAgainWhenAKilledRankIsReplaced() {
    JoinOptions options = job.joinOptions(0).withDevice(DeviceChoice.HOST);
    ProcessRank follower = startFollower();
    StepServer server = new StepServer(0);
    CompletableFuture<Void> serving = server.serve(RankGroup.generations(options)).toFuture();
    EventClient client = new EventClient(server.http.block(LONG).port());
    client.awaitServing();
    List<String> before = client.all(9, 30);
    assertThat(before).hasSize(30);
    ConcurrentLinkedQueue<String> seen = new ConcurrentLinkedQueue<>();
    CompletableFuture<Void> running =
        client.tokens(3, 1_000_000).doOnNext(seen::add).then().toFuture();
    await().until(() -> seen.size() > 3);
    follower.kill();
    assertThat(running).succeedsWithin(LONG);
    assertThat(seen).contains("event: error");
    // A request before the server has detected the failure of the job gets an error event.
    await().until(() -> client.status("/generate/1/1").block(LONG) == 503);
    ProcessRank replacement = startFollower();
    client.awaitServing();
    assertThat(client.all(9, 30)).isEqualTo(before);
    server.stop.tryEmitEmpty();
    assertThat(serving).succeedsWithin(LONG);
    assertThat(replacement.end()).isZero();
    server.http.block(LONG).disposeNow();
  }
}
