// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import io.fluxccl.testing.Rounds;
import io.fluxccl.testkit.ResourceLeaks;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.RegisteredMemory;
import java.time.Duration;
import java.util.List;
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
        List<Connection> ends = ranks.connect(0);
        RegisteredMemory source = ranks.memory(0, 64 << 10);
        ends.get(0).write(ranks.seenByPeer(ranks.memory(1, 64 << 10)), 0, source, 0, 64 << 10);
        NetRanks.get(ends.get(0).flush(NetRanks.LIMIT));
        ranks.endpoint(0, 1, 1);
        if (round % 3 == 0) {
          ends.get(0).close();
        }
      }
    }
  }
}
