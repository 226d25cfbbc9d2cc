// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.faults;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.testing.TestJvms;
import io.fluxccl.testkit.ProcessRanks;
import java.util.Map;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** A rank of a small heap floods another one whose process is stopped. */
@Tag("multiprocess")
@Timeout(180)
class BackPressureTest {
  @ParameterizedTest
  @CsvSource({"steps, TIMEOUT", "messages, TRANSPORT_FAILURE"})
  void shouldNameTheRankThatTakesNothing(String what, String code) {
    try (ProcessRanks ranks =
        TestJvms.withLog(2, FloodingRank.class, what)
            .variables(Map.of("FLUXCCL_DEVICE", "host", "FLUXCCL_TIMEOUT", "5"))
            .start()) {
      ranks.all().forEach(rank -> rank.awaitLine("joined"));
      ranks.get(1).stop();
      ranks.get(0).sendLine("go");
      String failed = ranks.get(0).awaitLine("failed");
      assertThat(failed).startsWith("failed " + code + " rank=1 ");
      assertThat(ranks.get(0).output()).doesNotContain("OutOfMemoryError");
    }
  }
}
