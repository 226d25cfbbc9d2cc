// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.docs;

import io.fluxccl.group.RankGroup;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import org.junit.jupiter.api.Test;
import reactor.core.publisher.Flux;
import reactor.test.StepVerifier;

/** The code of docs/0-ten-minutes.md, with {@link FirstAllReduce}. */
@org.junit.jupiter.api.Timeout(60)
class TenMinutesTest {
  @Test
  void shouldSumOnBothRanks() {
    List<RankGroup> groups = RankGroup.local(2);
    StepVerifier.create(
            Flux.fromIterable(groups).flatMap(FirstAllReduce::sums).map(Arrays::toString))
        .expectNext("[10, 12, 14, 16]", "[10, 12, 14, 16]")
        .expectComplete()
        .verify(Duration.ofSeconds(30));
    RankGroup.closeAll(groups);
  }
}
