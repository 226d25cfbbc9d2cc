// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import static io.fluxccl.testing.FailureAssertions.assertFails;
import static io.fluxccl.testing.FailureAssertions.assertRefused;
import static java.nio.charset.StandardCharsets.UTF_8;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.Aborted;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.RemoteFailure;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.function.IntUnaryOperator;
import java.util.stream.IntStream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

/**
 * The contract for sub-groups. They have ranks of a larger job in reverse order; one rank of the
 * job takes no part.
 */
class SubBootstrapTest extends BootstrapContract {
  private final List<Bootstrap> jobs = Collections.synchronizedList(new ArrayList<>());
  private final Map<Bootstrap, LocalBootstrap> jobOf = new HashMap<>();

  private List<LocalBootstrap> job(int nRanks) {
    List<LocalBootstrap> job = LocalBootstrap.group("chat", nRanks, LIMIT);
    jobs.addAll(job);
    return job;
  }

  @Override
  List<? extends Bootstrap> makeGroup(int nRanks) {
    List<LocalBootstrap> job = job(nRanks + 1);
    List<Bootstrap> group = new ArrayList<>();
    for (Optional<Bootstrap> each : split(job, rank -> rank == 0 ? -1 : 7, rank -> -rank)) {
      each.ifPresent(group::add);
    }
    Collections.reverse(group);
    for (int rank = 0; rank < nRanks; rank++) {
      jobOf.put(group.get(rank), job.get(nRanks - rank));
    }
    return group;
  }

  @Override
  CompletableFuture<Void> kill(Bootstrap bootstrap) {
    return new LocalBootstrapTest().kill(jobOf.get(bootstrap));
  }

  @AfterEach
  void closeJobs() {
    await(onAll(jobs, Bootstrap::closeAsync));
  }

  private static List<Optional<Bootstrap>> split(
      List<? extends Bootstrap> ranks, IntUnaryOperator color, IntUnaryOperator key) {
    return await(onAll(ranks, each -> split(each, "tensor", color, key)));
  }

  private static CompletableFuture<Optional<Bootstrap>> split(
      Bootstrap rank, String name, IntUnaryOperator color, IntUnaryOperator key) {
    Split own = new Split(name, color.applyAsInt(rank.rank()), key.applyAsInt(rank.rank()), 0);
    return rank.split(List.of(own), soon()).thenApply(all -> all.get(0));
  }

  private static List<Bootstrap> ofColor(
      List<? extends Bootstrap> ranks, IntUnaryOperator color, int wanted) {
    List<Optional<Bootstrap>> all = split(ranks, color, rank -> 0);
    return IntStream.range(0, ranks.size())
        .filter(rank -> color.applyAsInt(rank) == wanted)
        .mapToObj(rank -> all.get(rank).orElseThrow())
        .toList();
  }

  private static byte[] bytes(String text) {
    return text.getBytes(UTF_8);
  }

  @Test
  void shouldKeepGroupsApartIfTheirTagsAreEqual() {
    List<LocalBootstrap> job = job(4);
    List<Bootstrap> pair = ofColor(job, rank -> rank / 2, 0);
    List<Bootstrap> other = ofColor(job, rank -> rank / 2, 0);
    List<Bootstrap> nested = ofColor(pair, rank -> 0, 0);
    List<List<? extends Bootstrap>> groups = List.of(job, pair, other, nested);
    for (List<? extends Bootstrap> group : groups) {
      await(group.get(0).send(1, 3, bytes("of group " + groups.indexOf(group)), soon()));
    }
    for (int i = groups.size() - 1; i >= 0; i--) {
      assertThat(await(groups.get(i).get(1).recv(0, 3, soon()))).isEqualTo(bytes("of group " + i));
    }
  }

  @Test
  void shouldRunCollectiveOperationsOfSeveralGroupsInAnyOrder() {
    List<LocalBootstrap> job = job(4);
    List<Optional<Bootstrap>> rows = split(job, rank -> rank / 2, rank -> 0);
    List<CompletableFuture<List<byte[]>>> ofJob = new ArrayList<>();
    List<CompletableFuture<List<byte[]>>> ofRows = new ArrayList<>();
    for (int rank = 0; rank < 4; rank++) {
      Bootstrap row = rows.get(rank).orElseThrow();
      byte[] mine = bytes("" + rank);
      if (rank % 2 == 0) {
        ofJob.add(job.get(rank).allGather(mine, soon()));
      }
      ofRows.add(row.allGather(mine, soon()));
      if (rank % 2 == 1) {
        ofJob.add(job.get(rank).allGather(mine, soon()));
      }
    }
    await(ofJob).forEach(all -> assertThat(all).hasSize(4));
    assertThat(await(ofRows.get(3))).containsExactly(bytes("2"), bytes("3"));
    assertThat(await(ofRows.get(0))).containsExactly(bytes("0"), bytes("1"));
  }

  @Test
  void shouldRefuseASplitOnAllRanksWhenTheyNameOtherGroups() {
    List<LocalBootstrap> job = job(3);
    for (CompletableFuture<?> each :
        onAll(job, rank -> split(rank, rank.rank() == 2 ? "data" : "tensor", r -> 0, r -> 0))) {
      assertThat(assertFails(each, InvalidUsage.class))
          .hasMessage(
              "rank 0 calls split(tensor), rank 2 calls split(data); give the same names and sizes"
                  + " on all ranks");
    }
    assertThat(ofColor(job, rank -> 0, 0)).hasSize(3);
  }

  @Test
  void shouldRefuseASplitOnAllRanksWhenAGroupHasAnotherSize() {
    List<LocalBootstrap> job = job(3);
    for (CompletableFuture<?> each :
        onAll(
            job, rank -> rank.split(List.of(new Split("tensor", rank.rank() / 2, 0, 2)), soon()))) {
      String message = "the ranks [2] chose color 1; each color must have 2 ranks";
      assertFails(each, InvalidUsage.class, message);
    }
    assertRefused(() -> new Split("a b", 0, 0, 0));
    assertRefused(() -> new Split("", 0, 0, -1));
  }

  @Test
  void shouldCloseOnlyItself() {
    List<LocalBootstrap> job = job(4);
    List<Bootstrap> pair = ofColor(job, rank -> rank / 2, 0);
    List<Bootstrap> again = ofColor(job, rank -> rank / 2, 0);
    CompletableFuture<byte[]> waiting = pair.get(1).recv(0, 1, soon());
    await(pair.get(0).closeAsync());
    String message = "rank 1 of 2 of sub-group chat.tensor needs rank 0, which has left";
    assertThat(assertFails(waiting, RemoteFailure.class)).hasMessage(message);
    assertFails(pair.get(0).barrier(soon()), Aborted.class);
    await(onAll(again, each -> each.barrier(soon())));
    await(onAll(job, each -> each.barrier(soon())));
  }

  @Test
  void shouldForgetGroupsThatAllRanksHaveClosed() {
    List<LocalBootstrap> job = job(2);
    List<Bootstrap> pair = ofColor(job, rank -> 0, 0);
    await(pair.get(0).send(1, 1, bytes("nobody receives this"), soon()));
    await(onAll(pair, Bootstrap::closeAsync));
    assertThat(subGroups(job)).isZero();
  }

  @Test
  void shouldForgetASubGroupIfItsLastRankLeaves() {
    List<LocalBootstrap> job = job(2);
    List<Bootstrap> pair = ofColor(job, rank -> 0, 0);
    await(pair.get(0).closeAsync());
    await(onAll(job, each -> each.barrier(soon())));
    await(pair.get(1).closeAsync());
    assertThat(subGroups(job)).isZero();
  }

  private static int subGroups(List<LocalBootstrap> job) {
    await(onAll(job, each -> each.barrier(soon())));
    return await(
        CompletableFuture.supplyAsync(
            () -> job.stream().mapToInt(each -> each.subGroups.size()).sum(), job.get(0).loop));
  }

  @Test
  void shouldFailIfTheJobEnds() {
    List<LocalBootstrap> job = job(2);
    List<Bootstrap> pair = ofColor(job, rank -> 0, 0);
    CompletableFuture<FluxCclException> ended = pair.get(0).failure();
    await(job.get(0).closeAsync());
    assertThat(await(ended)).isInstanceOf(Aborted.class);
    assertFails(pair.get(1).recv(0, 1, soon()), RemoteFailure.class);
  }

  @Test
  void shouldWorkOverTcp() {
    BootstrapOptions options = BootstrapOptions.builder().name("chat").build();
    List<TcpBootstrap> job = TcpRanks.byAddress(4, options);
    jobs.addAll(job);
    List<Bootstrap> odd = ofColor(job, rank -> rank % 2, 1);
    await(onAll(odd, each -> each.barrier(soon())));
    await(odd.get(0).send(1, 1, bytes("hello"), soon()));
    await(odd.get(0).closeAsync());
    assertThat(await(odd.get(1).recv(0, 1, soon()))).isEqualTo(bytes("hello"));
    assertFails(odd.get(1).recv(0, 1, soon()), RemoteFailure.class);
    List<Bootstrap> upper = ofColor(job, rank -> rank / 2, 1);
    await(TcpRanks.kill(job.get(3)));
    FluxCclException lost = await(upper.get(0).failure());
    assertLost(lost, 1);
    assertThat(lost).hasMessageContaining("rank 3");
  }
}
