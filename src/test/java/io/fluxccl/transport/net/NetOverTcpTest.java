// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.netplugin.NetPlugin;
import io.fluxccl.transport.Transfer;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.time.Duration;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

/** NET over the built-in TCP network, whose sockets end the agent's sleep. */
class NetOverTcpTest extends NetConnectionContract {
  NetOverTcpTest() {
    super(folder -> NetRanks.overTcp(false));
  }

  /** The bound: two idle agents take less than a fifth of a core. */
  @Tag("timed")
  @Test
  void shouldSleepWhileNothingIsPostedAndAnswerAtOnceAfterwards() throws Exception {
    Transfer transfer = ranks.transfer(0, 64);
    transfer.flush();
    long before = agentNanos();
    Awaitility.await("both agents take less than a fifth of a core")
        .during(Duration.ofSeconds(1))
        .atMost(Duration.ofSeconds(10))
        .until(() -> agentNanos() - before < 200_000_000);
    transfer.check();
  }

  private static long agentNanos() {
    ThreadMXBean threads = ManagementFactory.getThreadMXBean();
    return Thread.getAllStackTraces().keySet().stream()
        .filter(thread -> thread.getName().startsWith("fluxccl-net-rank"))
        .mapToLong(thread -> threads.getThreadCpuTime(thread.getId()))
        .sum();
  }

  @Test
  void shouldListenAtTheJobsAddressOnly() {
    NetPlugin plugin = ranks.context(0).plugin();
    assertThat(plugin.devices()).isEqualTo(1);
    assertThat(plugin.properties(0).name()).isEqualTo("127.0.0.1");
  }
}
