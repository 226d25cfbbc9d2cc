// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.ib;

import static io.fluxccl.testing.FailureAssertions.assertRefused;
import static org.assertj.core.api.Assertions.assertThat;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Devices as the kernel would show them, in a folder of files. */
class RdmaDevicesTest {
  private static final String LINK_LOCAL = "fe80:0000:0000:0000:7471:23ff:fe1b:f8f2";
  private static final String IPV4 = "0000:0000:0000:0000:0000:ffff:0a09:0901";
  private static final String OTHER_IPV4 = "0000:0000:0000:0000:0000:ffff:0a09:0902";
  private static final String IPV6 = "2001:0db8:0000:0000:0000:0000:0000:0001";
  private static final String NONE = "0000:0000:0000:0000:0000:0000:0000:0000";

  @TempDir private Path root;

  private void add(String name, int number, String state, String layer, String... gids)
      throws IOException {
    add(root, name, number, state, layer, gids);
  }

  /** Adds a port's files; the type of a GID is RoCE v2 unless a space and "v1" follow it. */
  static void add(Path root, String name, int number, String state, String layer, String... gids)
      throws IOException {
    Path port = root.resolve("sys/class/infiniband/" + name + "/ports/" + number);
    Files.createDirectories(port.resolve("gids"));
    Files.createDirectories(port.resolve("gid_attrs/types"));
    Files.writeString(port.resolve("state"), state + "\n");
    Files.writeString(port.resolve("link_layer"), layer + "\n");
    for (int i = 0; i < gids.length; i++) {
      String[] gid = gids[i].split(" ");
      Files.writeString(port.resolve("gids/" + i), gid[0] + "\n");
      if (!gid[0].equals(NONE)) {
        String type = gid.length > 1 ? "IB/RoCE v1\n" : "RoCE v2\n";
        Files.writeString(port.resolve("gid_attrs/types/" + i), type);
      }
    }
  }

  private RdmaDevices.Device find(String name, String chosen) {
    return RdmaDevices.find(root, List.of(name), chosen).get(0);
  }

  private List<String> labels(List<String> listed, String chosen) {
    return RdmaDevices.find(root, listed, chosen).stream().map(RdmaDevices.Device::label).toList();
  }

  @Test
  void shouldKeepTheOrderOfTheVerbs() {
    List<String> listed = List.of("mlx5_10", "mlx5_2", "bnxt_re0", "mlx5_0");
    assertThat(labels(listed, null)).isEqualTo(listed);
    assertThat(labels(List.of(), null)).isEmpty();
  }

  @Test
  void shouldPreferAnIpv4AddressAndKnowAllOthers() throws IOException {
    add("rxe0", 1, "4: ACTIVE", "Ethernet", LINK_LOCAL + " v1", LINK_LOCAL, NONE, IPV6, IPV4);
    RdmaDevices.Device device = find("rxe0", "");
    assertThat(device.gids())
        .extracting(Gid::kind)
        .containsExactly(
            Gid.Kind.ROCE_V1,
            Gid.Kind.ROCE_V2_LINK_LOCAL,
            Gid.Kind.ROCE_V2_IPV6,
            Gid.Kind.ROCE_V2_IPV4);
    Gid preferred = device.preferredGid().orElseThrow();
    assertThat(preferred.index()).isEqualTo(4);
    assertThat(preferred).hasToString("10.9.9.1 (RoCE v2)");
    assertThat(device.active()).isTrue();
    assertThat(device.linkLayer()).isEqualTo("Ethernet");
  }

  @Test
  void shouldUseTheFirstPortThatHasALink() throws IOException {
    add("mlx4_0", 1, "1: DOWN", "InfiniBand");
    add("mlx4_0", 2, "4: ACTIVE", "InfiniBand", LINK_LOCAL);
    RdmaDevices.Device device = find("mlx4_0", null);
    assertThat(device.port()).isEqualTo(2);
    assertThat(device.label()).isEqualTo("mlx4_0:2");
    assertThat(device.gids()).extracting(Gid::kind).containsExactly(Gid.Kind.INFINIBAND);
  }

  @Test
  void shouldShowADeviceWithoutALink() throws IOException {
    add("mlx5_0", 1, "1: DOWN", "InfiniBand", LINK_LOCAL);
    assertThat(find("mlx5_0", null).active()).isFalse();
    assertThat(find("mlx5_0", null).port()).isEqualTo(1);
  }

  @Test
  void shouldNameTheFileOfADevice() throws IOException {
    add("mlx5_3", 1, "4: ACTIVE", "InfiniBand");
    assertThat(find("mlx5_3", null).node()).isNull();
    Path uverbs = root.resolve("sys/class/infiniband_verbs/uverbs1");
    Files.createDirectories(uverbs);
    Files.writeString(uverbs.resolve("ibdev"), "mlx5_3\n");
    assertThat(find("mlx5_3", null).node()).isEqualTo(root.resolve("dev/infiniband/uverbs1"));
  }

  @Test
  void shouldChooseDevicesPortsAndAddressesAsAsked() throws IOException {
    List<String> listed = List.of("a0", "a1");
    add("a0", 1, "4: ACTIVE", "Ethernet", LINK_LOCAL, IPV4, OTHER_IPV4);
    add("a0", 2, "4: ACTIVE", "Ethernet", IPV6);
    add("a1", 1, "4: ACTIVE", "Ethernet");
    assertThat(labels(listed, "a1, a0:2,a0")).containsExactly("a1", "a0:2", "a0");
    List<RdmaDevices.Device> devices =
        RdmaDevices.find(root, listed, "a0=10.9.9.2,a0:2=2001:db8::1");
    assertThat(devices.get(0).gids()).singleElement().hasToString("10.9.9.2 (RoCE v2)");
    assertThat(devices.get(1).gids()).singleElement().extracting(Gid::index).isEqualTo(0);
  }

  @Test
  void shouldRefuseMissingDevicesPortsAndAddresses() throws IOException {
    List<String> listed = List.of("a0", "a1");
    add("a0", 1, "4: ACTIVE", "Ethernet", IPV4);
    assertRefused(() -> labels(listed, "a3"), "a3", "[a0, a1]");
    for (String wrong : List.of("a0:3", "a0:x", "a0:")) {
      assertRefused(() -> labels(listed, wrong), "the ports of a0 are [1]");
    }
    assertRefused(
        () -> labels(listed, "a0=10.9.9.2"),
        "a0 has no address 10.9.9.2, only [10.9.9.1 (RoCE v2)]");
    for (String wrong : List.of("a0=10.0.0", "a0=10.0.0.256", "a0=host")) {
      assertRefused(() -> labels(listed, wrong), "a.b.c.d");
    }
  }
}
