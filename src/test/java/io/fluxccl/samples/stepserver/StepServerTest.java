// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.stepserver;

import static org.assertj.core.api.Assertions.assertThat;
import static org.awaitility.Awaitility.await;

import io.fluxccl.Aborted;
import io.fluxccl.group.DeviceChoice;
import io.fluxccl.group.JoinOptions;
import io.fluxccl.group.RankGroup;
import io.fluxccl.testing.TestJvms;
import io.fluxccl.testkit.ProcessRanks;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeoutException;
import java.util.stream.IntStream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import reactor.core.Disposable;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;
import reactor.test.StepVerifier;

@Timeout(120)
class StepServerTest {
  private static final Duration LONG = Duration.ofSeconds(60);
  private static final int RANKS = 2;
  private static final int ENDLESS = 1_000_000;

  private final List<StepServer> servers = new ArrayList<>();
  private final List<CompletableFuture<Void>> serving = new ArrayList<>();
  private final ConcurrentLinkedQueue<RankGroup> groups = new ConcurrentLinkedQueue<>();
  private EventClient client;

  @BeforeEach
  void start() {
    ProcessRanks.Builder job = TestJvms.of(RANKS, StepServer.class);
    for (int rank = 0; rank < RANKS; rank++) {
      JoinOptions options = job.joinOptions(rank).withDevice(DeviceChoice.HOST);
      StepServer server = new StepServer(0);
      servers.add(server);
      serving.add(server.serve(RankGroup.generations(options).doOnNext(groups::add)).toFuture());
    }
    await().until(() -> groups.size() == RANKS);
    client = new EventClient(servers.get(0).http.block(LONG).port());
    client.awaitServing();
  }

  @AfterEach
  void stop() {
    servers.get(0).stop.tryEmitEmpty();
    serving.forEach(each -> assertThat(each).succeedsWithin(LONG));
    servers.get(0).http.block(LONG).disposeNow();
  }

  private static Disposable open(Flux<String> events, ConcurrentLinkedQueue<String> seen) {
    return events.onErrorResume(e -> Mono.just("closed")).subscribe(seen::add);
  }

  private List<Disposable> fill(int count) {
    List<Disposable> opened = new ArrayList<>();
    for (int i = 0; i < count; i++) {
      ConcurrentLinkedQueue<String> seen = new ConcurrentLinkedQueue<>();
      opened.add(open(client.tokens(i, ENDLESS), seen));
      await().until(() -> !seen.isEmpty());
    }
    return opened;
  }

  @Test
  void shouldGenerateEqualTokensAloneAndInABatch() {
    List<List<String>> alone = IntStream.range(0, 12).mapToObj(i -> client.all(i, 20)).toList();
    assertThat(alone).allSatisfy(each -> assertThat(each).hasSize(20));
    assertThat(alone.stream().flatMap(List::stream).distinct()).hasSizeGreaterThan(5);
    Flux<List<String>> together =
        Flux.range(0, 12).flatMapSequential(i -> client.tokens(i, 20).collectList());
    StepVerifier.create(together).expectNextSequence(alone).expectComplete().verify(LONG);
  }

  @Test
  void shouldServeOtherClientsIfOneDisconnectsOrTimesOut() {
    List<String> expected = client.all(5, 100);
    List<Disposable> disconnecting = fill(3);
    CompletableFuture<List<String>> other = client.tokens(5, 100).collectList().toFuture();
    disconnecting.forEach(Disposable::dispose);
    StepVerifier.create(client.tokens(7, ENDLESS).then().timeout(Duration.ofMillis(200)))
        .expectError(TimeoutException.class)
        .verify(LONG);
    assertThat(other).succeedsWithin(LONG).isEqualTo(expected);
    // Disconnected clients free their batch slots: otherwise this would wait for ever.
    assertThat(client.all(5, 100)).isEqualTo(expected);
  }

  @Test
  void shouldAnswer429WhenTooManyWait() {
    List<Disposable> running = fill(Mlp.MAX_BATCH);
    ConcurrentLinkedQueue<String> seen = new ConcurrentLinkedQueue<>();
    List<Disposable> waiting = new ArrayList<>();
    for (int i = 0; i < Batcher.MAX_WAITING + 1; i++) {
      waiting.add(open(client.tokens(i, 1), seen));
    }
    await().until(() -> seen.contains("status 429"));
    assertThat(seen).containsExactly("status 429");
    running.get(0).dispose();
    await().until(() -> seen.size() == Batcher.MAX_WAITING + 1);
    assertThat(seen.stream().filter(each -> each.startsWith("data: ")))
        .hasSize(Batcher.MAX_WAITING);
    running.forEach(Disposable::dispose);
  }

  @Test
  void shouldRefuseInvalidPromptsAndPaths() {
    assertThat(client.status("/generate/64/1").block(LONG)).isEqualTo(400);
    assertThat(client.status("/generate/-1/1").block(LONG)).isEqualTo(400);
    assertThat(client.status("/generate/1/0").block(LONG)).isEqualTo(400);
    assertThat(client.status("/generate/1/99999999").block(LONG)).isEqualTo(400);
    assertThat(client.status("/else").block(LONG)).isEqualTo(404);
  }

  @Test
  void shouldServeAgainAfterARankHasFailed() {
    List<String> before = client.all(9, 30);
    ConcurrentLinkedQueue<String> seen = new ConcurrentLinkedQueue<>();
    Disposable running = open(client.tokens(3, ENDLESS), seen);
    await().until(() -> seen.size() > 3);
    RankGroup follower = groups.stream().filter(each -> each.rank() == 1).findFirst().orElseThrow();
    follower.communicator().abort(Aborted.of(1, "rank 1 is broken"));
    await().until(() -> seen.stream().anyMatch(each -> each.contains("rank 1 is broken")));
    assertThat(seen).contains("event: error");
    client.awaitServing();
    // Rank 1 may enter its new group a moment after rank 0 serves with its own.
    await().untilAsserted(() -> assertThat(groups).hasSize(2 * RANKS));
    assertThat(client.all(9, 30)).isEqualTo(before);
    running.dispose();
  }
}
