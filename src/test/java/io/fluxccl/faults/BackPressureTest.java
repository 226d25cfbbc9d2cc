// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.faults;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.bootstrap.JobSecret;
import io.fluxccl.testing.Ports;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** A rank of a small heap floods another one whose process is stopped. */
@Tag("multiprocess")
@Timeout(180)
class BackPressureTest {
  private final List<FaultRankProcess> ranks = new ArrayList<>();

  @AfterEach
  void end() {
    ranks.forEach(FaultRankProcess::close);
  }

  @ParameterizedTest
  @CsvSource({"steps, TIMEOUT", "messages, TRANSPORT_FAILURE"})
  void shouldNameTheRankThatTakesNothing(String what, String code) throws Exception {
    String address = "127.0.0.1:" + Ports.reserved();
    String secret = JobSecret.random().text();
    for (int rank = 0; rank < 2; rank++) {
      Map<String, String> variables =
          Map.of(
              "FLUXCCL_RANK",
              "" + rank,
              "FLUXCCL_NRANKS",
              "2",
              "FLUXCCL_ADDR",
              address,
              "FLUXCCL_DEVICE",
              "host",
              "FLUXCCL_TIMEOUT",
              "5",
              "FLUXCCL_SECRET",
              secret);
      ranks.add(new FaultRankProcess(FloodingRank.class, List.of(), variables, what));
    }
    ranks.forEach(rank -> rank.awaitLine("joined"));
    ranks.get(1).process().stop();
    ranks.get(0).process().sendLine("go");
    ranks.get(0).awaitLineAfterFailure("failed");
    assertThat(ranks.get(0).last("failed")).startsWith("failed " + code + " rank=1 ");
    assertThat(ranks.get(0).output()).doesNotContain("OutOfMemoryError");
  }
}
