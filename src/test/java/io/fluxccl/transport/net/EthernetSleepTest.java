// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import io.fluxccl.transport.Transfer;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.time.Duration;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Agents of ETHERNET, whose sockets end their sleep. */
@Timeout(120)
class EthernetSleepTest {
  /** The bound: two idle agents take less than a fifth of a core. */
  @Tag("timed")
  @Test
  void shouldSleepWhileNothingIsPostedAndAnswerAtOnceAfterwards() throws Exception {
    try (NetRanks ranks = NetRanks.ethernet(false)) {
      Transfer transfer = ranks.transfer(0, 64);
      transfer.flush();
      long before = agentNanos();
      Awaitility.await("both agents take less than a fifth of a core")
          .during(Duration.ofSeconds(1))
          .atMost(Duration.ofSeconds(10))
          .until(() -> agentNanos() - before < 200_000_000);
      transfer.check();
    }
  }

  private static long agentNanos() {
    ThreadMXBean threads = ManagementFactory.getThreadMXBean();
    return Thread.getAllStackTraces().keySet().stream()
        .filter(thread -> thread.getName().startsWith("fluxccl-ethernet-rank"))
        .mapToLong(thread -> threads.getThreadCpuTime(thread.getId()))
        .sum();
  }
}
