// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.group;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.ReduceOp;
import io.fluxccl.bootstrap.JobSecret;
import io.fluxccl.device.IntView;
import io.fluxccl.testing.Ports;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.function.Function;
import java.util.function.IntUnaryOperator;
import java.util.stream.IntStream;
import reactor.core.publisher.Mono;
import reactor.test.StepVerifier;

/** Groups whose ranks share this JVM, and operations of all ranks at once. */
final class Groups {
  static final Duration LONG = Duration.ofSeconds(60);

  private static final int COUNT = 1024;

  private Groups() {}

  /** Returns options of ranks in host memory. */
  static JoinOptions onHost() {
    return JoinOptions.of(0, 1).withDevice(DeviceChoice.HOST);
  }

  /** A free port of this host, and the secret of a job in host memory that is named chat. */
  record Place(int port, JobSecret secret) {
    static Place free() {
      return new Place(Ports.reserved(), JobSecret.random());
    }

    JoinOptions options(int rank, int nRanks) {
      return JoinOptions.of(rank, nRanks)
          .withDevice(DeviceChoice.HOST)
          .withName("chat")
          .withAddress("127.0.0.1:" + port)
          .withSecret(secret);
    }
  }

  static List<RankGroup> local(int nRanks) {
    return RankGroup.local(nRanks, onHost());
  }

  static <T> List<T> onAll(
      List<RankGroup> ranks, Function<RankGroup, CompletableFuture<T>> operation) {
    return await(ranks.stream().map(operation).toList());
  }

  static <T> List<T> await(List<CompletableFuture<T>> all) {
    assertThat(all).allSatisfy(each -> assertThat(each).succeedsWithin(LONG));
    return all.stream().map(CompletableFuture::join).toList();
  }

  /** Splits a group by color; each rank is in a sub-group. */
  static List<RankGroup> split(List<RankGroup> ranks, String name, IntUnaryOperator color) {
    return onAll(ranks, each -> each.split(name, color.applyAsInt(each.rank()), 0)).stream()
        .map(Optional::orElseThrow)
        .toList();
  }

  static List<RankGroup> pairs(List<RankGroup> ranks) {
    return split(ranks, "tensor", rank -> rank / 2);
  }

  static void assertCompletes(Mono<?> all) {
    StepVerifier.create(all.then()).expectComplete().verify(LONG);
  }

  static void assertAllSucceed(List<CompletableFuture<Void>> all) {
    assertThat(all).allSatisfy(each -> assertThat(each).succeedsWithin(LONG));
  }

  static void closeAll(List<RankGroup> groups) {
    assertAllSucceed(groups.stream().map(RankGroup::closeAsync).toList());
  }

  /** Sums the positions of the groups in the list, with all of them at the same time. */
  static List<Integer> sums(List<RankGroup> groups) {
    return sums(groups, at -> at);
  }

  private static List<Integer> sums(List<RankGroup> groups, IntUnaryOperator value) {
    List<IntView> views = new ArrayList<>();
    List<Mono<Void>> runs = new ArrayList<>();
    for (int at = 0; at < groups.size(); at++) {
      IntView view = groups.get(at).device().allocateInts(COUNT);
      view.put(COUNT - 1, value.applyAsInt(at));
      views.add(view);
      runs.add(groups.get(at).collectives().allReduce(view, ReduceOp.SUM));
    }
    assertCompletes(Mono.when(runs));
    List<Integer> sums = views.stream().map(view -> view.get(COUNT - 1)).toList();
    views.forEach(IntView::close);
    return sums;
  }

  /** Asserts that these are all ranks of a group, in order, and that they can all-reduce. */
  static void assertWorks(List<RankGroup> groups) {
    int nRanks = groups.size();
    assertThat(groups).extracting(RankGroup::nRanks).containsOnly(nRanks);
    assertThat(groups)
        .extracting(RankGroup::rank)
        .containsExactlyElementsOf(IntStream.range(0, nRanks).boxed().toList());
    assertThat(sums(groups, at -> 1)).containsOnly(nRanks);
  }
}
