// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.awaitility.Awaitility.await;

import com.sun.management.UnixOperatingSystemMXBean;
import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.device.Device;
import io.fluxccl.device.host.HostDevice;
import io.fluxccl.netplugin.NetPlugin;
import io.fluxccl.netplugin.tcp.TcpNetPlugin;
import io.fluxccl.netplugin.tcp.TcpOptions;
import io.fluxccl.testing.Rounds;
import io.fluxccl.transport.Endpoint;
import io.fluxccl.transport.EndpointConfig;
import io.fluxccl.transport.Transport;
import java.lang.management.ManagementFactory;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(120)
class NetContextCloseTest {
  private static final int ROUNDS = Rounds.of(60, 300);
  private static final int ATTEMPTS = Rounds.of(20, 50);
  private static final int THREADS = 3;

  private static void createUntilClosed(NetContext context, CountDownLatch begun) {
    while (true) {
      try {
        context.createEndpoint(1, 0, EndpointConfig.of(Transport.NET));
        begun.countDown();
      } catch (InvalidUsage e) {
        return; // it is closed
      }
    }
  }

  @Test
  void shouldEndTheThreadWhenEndpointsAreMadeMeanwhile() throws Exception {
    try (NetPlugin plugin = new TcpNetPlugin(TcpOptions.DEFAULT.withInterfaces("lo"));
        Device device = HostDevice.create()) {
      for (int round = 0; round < ROUNDS; round++) {
        NetContext context = NetRanks.open(NetRanks.environment(0, device), plugin, 1, () -> {});
        CountDownLatch begun = new CountDownLatch(THREADS);
        List<CompletableFuture<Void>> creators = new ArrayList<>();
        for (int i = 0; i < THREADS; i++) {
          creators.add(CompletableFuture.runAsync(() -> createUntilClosed(context, begun)));
        }
        begun.await();
        context.close();
        for (CompletableFuture<Void> creator : creators) {
          creator.get(60, TimeUnit.SECONDS);
        }
        await()
            .pollInterval(Duration.ofMillis(1))
            .atMost(Duration.ofSeconds(10))
            .until(() -> context.agent().isTerminated());
      }
    }
  }

  @Test
  void shouldCloseSocketsOfAttemptsThatThePeerNeverAccepts() throws Exception {
    UnixOperatingSystemMXBean process =
        ManagementFactory.getPlatformMXBean(UnixOperatingSystemMXBean.class);
    try (NetRanks ranks = new NetRanks(new TcpNetPlugin(TcpOptions.DEFAULT.withInterfaces("lo")))) {
      Endpoint deaf = ranks.endpoint(1, 0, 0);
      long before = process.getOpenFileDescriptorCount();
      for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
        Endpoint end = ranks.endpoint(0, 1, 0);
        Deadline deadline = Deadline.after(Duration.ofMillis(20));
        assertThatThrownBy(() -> NetRanks.get(end.connect(deaf.wire(), deadline)))
            .hasCauseInstanceOf(FluxCclException.class);
      }
      await().until(() -> ranks.context(0).openConnections() == 0);
      assertThat(process.getOpenFileDescriptorCount()).isLessThan(before + ATTEMPTS);
    }
  }
}
