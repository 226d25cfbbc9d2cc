// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import static io.fluxccl.transport.net.NetRanks.LIMIT;
import static io.fluxccl.transport.net.NetRanks.get;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.FluxCclException;
import io.fluxccl.TransportFailure;
import io.fluxccl.netplugin.NetPlugin;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.RegisteredMemory;
import java.lang.management.ManagementFactory;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

/** NET over the built-in TCP network, whose sockets end the agent's sleep. */
class NetOverTcpTest extends NetConnectionContract {
  @Override
  NetRanks open(Path folder) {
    return NetRanks.overTcp(false);
  }

  /** The bound: two idle agents take less than a fifth of a core. */
  @Tag("timed")
  @Test
  void shouldSleepWhileNothingIsPostedAndAnswerAtOnceAfterwards() throws Exception {
    Connection link = ranks.connect(0).get(0);
    RegisteredMemory source = ranks.memory(0, 64);
    RegisteredMemory remote = ranks.seenByPeer(ranks.memory(1, 64));
    get(link.flush(LIMIT));
    long before = agentNanos();
    Awaitility.await("both agents take less than a fifth of a core")
        .during(Duration.ofSeconds(1))
        .atMost(Duration.ofSeconds(10))
        .until(() -> agentNanos() - before < 200_000_000);

    link.write(remote, 0, source, 0, 64);
    get(link.flush(LIMIT));
  }

  private static long agentNanos() {
    var threads = ManagementFactory.getThreadMXBean();
    long sum = 0;
    for (Thread thread : Thread.getAllStackTraces().keySet()) {
      if (thread.getName().startsWith("fluxccl-net-rank")) {
        sum += threads.getThreadCpuTime(thread.getId());
      }
    }
    return sum;
  }

  @Test
  void shouldListenAtTheJobsAddressOnly() {
    NetPlugin plugin = ranks.context(0).plugin();
    assertThat(plugin.devices()).isEqualTo(1);
    assertThat(plugin.properties(0).name()).isEqualTo("127.0.0.1");
  }

  @Test
  void shouldFailNamingTheRankWhenAnIdlePeersSocketsEnd() throws Exception {
    List<Connection> ends = ranks.connect(0);
    get(ends.get(0).flush(LIMIT));
    ranks.context(1).agent().execute(() -> ((NetConnection) ends.get(1)).breakOff());
    FluxCclException failure = get(ends.get(0).failed());
    assertThat(failure).isInstanceOf(TransportFailure.class);
    assertThat(failure.rank()).isEqualTo(1);
  }
}
