// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.group;

import static io.fluxccl.group.Groups.LONG;
import static io.fluxccl.testing.FailureAssertions.assertFails;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.FluxCclException;
import io.fluxccl.ReduceOp;
import io.fluxccl.device.FloatView;
import java.time.Duration;
import java.util.List;
import java.util.OptionalInt;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import reactor.test.StepVerifier;

@Tag("jdk")
class RankGroupTest {
  @Test
  void shouldReportNoSilentRankUntilItIsClosed() {
    RankGroup group = RankGroup.local(1).get(0);
    StepVerifier.create(group.silentRank())
        .expectNext(OptionalInt.empty())
        .then(group::close)
        .expectComplete()
        .verify(LONG);
  }

  @Test
  void shouldEndWithATypedErrorWhenAnotherRankClosesItsGroup() throws Exception {
    List<RankGroup> groups =
        RankGroup.local(3, JoinOptions.of(0, 1).withTimeout(Duration.ofSeconds(10)));
    CompletableFuture<Void> leaving = groups.get(2).closeAsync();
    for (RankGroup group : groups.subList(0, 2)) {
      try (FloatView x = group.device().allocateFloats(1 << 14)) {
        CompletableFuture<Void> run = group.collectives().allReduce(x, ReduceOp.SUM).toFuture();
        assertFails(run, FluxCclException.class, "rank");
      }
    }
    leaving.get(60, TimeUnit.SECONDS);
    groups.forEach(RankGroup::close);
    groups.forEach(RankGroup::close);
    assertThat(groups.get(0).communicator().failure()).isNotNull();
  }

  @Test
  void shouldAllReduceUntilAllLeaveAtOnce() {
    List<RankGroup> groups = RankGroup.local(3);
    Groups.assertWorks(groups);
    Groups.closeAll(groups);
    assertFails(groups.get(0).collectives().barrier().toFuture(), FluxCclException.class);
  }
}
