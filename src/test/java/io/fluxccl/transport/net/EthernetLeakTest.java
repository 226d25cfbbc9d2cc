// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import io.fluxccl.testing.Rounds;
import io.fluxccl.testkit.ResourceLeaks;
import io.fluxccl.transport.Transfer;
import java.time.Duration;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

@Timeout(60)
class EthernetLeakTest {
  @ParameterizedTest
  @ValueSource(booleans = {false, true})
  void shouldLeaveNoThreadAndNoFileWhenClosedManyTimes(boolean staged) throws Exception {
    rounds(staged, 3);
    ResourceLeaks before = ResourceLeaks.snapshot();
    rounds(staged, Rounds.of(30, 100));
    before.assertNone(Duration.ofSeconds(30));
  }

  private static void rounds(boolean staged, int count) throws Exception {
    for (int round = 0; round < count; round++) {
      try (NetRanks ranks = NetRanks.ethernet(staged)) {
        Transfer transfer = ranks.transfer(0, 64 << 10);
        transfer.check();
        ranks.endpoint(0, 1, 1);
        if (round % 3 == 0) {
          transfer.link().close();
        }
      }
    }
  }
}
