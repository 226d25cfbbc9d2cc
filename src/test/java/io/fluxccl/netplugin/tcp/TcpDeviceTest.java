// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.tcp;

import static io.fluxccl.testing.FailureAssertions.assertRefused;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.netplugin.NetProperties;
import io.fluxccl.netplugin.tcp.TcpDevice.Link;
import io.fluxccl.settings.Settings;
import java.io.IOException;
import java.net.InetAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/**
 * Properties of network interfaces that devices report to NCCL, read from a folder like
 * /sys/class/net.
 */
class TcpDeviceTest {
  @TempDir private Path interfaces;

  private void add(String name, String speed, String port) throws IOException {
    Path folder = Files.createDirectories(interfaces.resolve(name));
    if (speed != null) {
      Files.writeString(folder.resolve("speed"), speed + "\n");
    }
    if (port != null) {
      Files.writeString(folder.resolve("dev_port"), port + "\n");
    }
  }

  private Link link(String name, Map<String, String> environment) {
    return Link.of(name, interfaces, TcpOptions.fromEnvironment(Settings.of(environment)));
  }

  @Test
  void shouldReadSpeedAndPort() throws Exception {
    add("eth0", "100000", "0");
    add("eth1", "25000", "1");
    Path card = Files.createDirectories(interfaces.resolve("card"));
    Files.createSymbolicLink(interfaces.resolve("eth1").resolve("device"), card);
    assertThat(link("eth0", Map.of())).isEqualTo(new Link(100_000, 0, 0, null));
    assertThat(link("eth1", Map.of()))
        .isEqualTo(new Link(25_000, 1, 0, card.toRealPath().toString()));
  }

  @Test
  void shouldAddTheSpeedsBelowAnInterfaceThatHasNone() throws Exception {
    add("eth0", "40000", "0");
    add("eth1", "40000", "1");
    add("br0", "-1", null);
    Files.createSymbolicLink(interfaces.resolve("br0/lower_eth0"), interfaces.resolve("eth0"));
    Files.createSymbolicLink(interfaces.resolve("br0/lower_eth1"), interfaces.resolve("eth1"));
    assertThat(link("br0", Map.of()).speedMbps()).isEqualTo(80_000);
  }

  @Test
  void shouldAssumeASpeedIfTheSystemReportsNone() throws Exception {
    add("lo", null, "0");
    add("tap0", "-1", "text");
    for (String name : new String[] {"lo", "tap0", "nothere"}) {
      assertThat(link(name, Map.of()))
          .isEqualTo(new Link(TcpDevice.UNKNOWN_SPEED_MBPS, 0, 0, null));
    }
  }

  @Test
  void shouldReportSpeedAndLatencyThatTheUserSets() throws Exception {
    add("eth0", "100000", "0");
    Link link = link("eth0", Map.of("FLUXCCL_NET_SPEED", "200000", "FLUXCCL_NET_LATENCY", "25.5"));
    assertThat(link).isEqualTo(new Link(200_000, 0, 25.5f, null));
    assertRefused(
        () -> link("eth0", Map.of("FLUXCCL_NET_LATENCY", "soon")), "FLUXCCL_NET_LATENCY=soon");
    assertRefused(() -> link("eth0", Map.of("FLUXCCL_NET_LATENCY", "NaN")));
  }

  @Test
  void shouldKnowTheInterfaceOfAnAddress() {
    TcpOptions options =
        TcpOptions.fromEnvironment(Settings.of(Map.of("FLUXCCL_NET_LATENCY", "7")));
    try (TcpNetPlugin network = TcpNetPlugin.at(InetAddress.getLoopbackAddress(), options)) {
      NetProperties properties = network.properties(0);
      assertThat(properties.name()).isEqualTo("127.0.0.1");
      assertThat(properties.latencyMicros()).isEqualTo(7);
      assertThat(properties.speedMbps()).isEqualTo(TcpDevice.UNKNOWN_SPEED_MBPS);
      assertThat(properties.pciPath()).isNull();
    }
  }
}
