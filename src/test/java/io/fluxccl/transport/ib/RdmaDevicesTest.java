package io.fluxccl.transport.ib;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.InvalidUsage;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Devices as the kernel would show them, in a folder of files. */
class RdmaDevicesTest {
  @TempDir private Path sysfs;

  private void add(String name, String state, String layer, String... gids) throws IOException {
    Path port = sysfs.resolve(name).resolve("ports").resolve("1");
    Files.createDirectories(port.resolve("gids"));
    Files.writeString(port.resolve("state"), state + "\n");
    Files.writeString(port.resolve("link_layer"), layer + "\n");
    for (int i = 0; i < gids.length; i++) {
      Files.writeString(port.resolve("gids").resolve("" + i), gids[i] + "\n");
    }
  }

  private List<String> names(String chosen) {
    return RdmaDevices.find(sysfs, chosen).stream().map(RdmaDevices.Device::name).toList();
  }

  @Test
  void shouldOrderDevicesByNameWithNumbersAsNumbers() throws IOException {
    for (String name : List.of("mlx5_10", "mlx5_2", "mlx5_0", "bnxt_re0")) {
      add(name, "4: ACTIVE", "Ethernet");
    }
    assertThat(names(null)).containsExactly("bnxt_re0", "mlx5_0", "mlx5_2", "mlx5_10");
  }

  @Test
  void shouldTakeTheAddressFromTheFirstGidThatIsAnIpv4Address() throws IOException {
    add(
        "rxe0",
        "4: ACTIVE",
        "Ethernet",
        "fe80:0000:0000:0000:7471:23ff:fe1b:f8f2",
        "0000:0000:0000:0000:0000:ffff:0a09:09fe",
        "0000:0000:0000:0000:0000:ffff:0a09:0901");
    RdmaDevices.Device device = RdmaDevices.find(sysfs, "").get(0);
    assertThat(device.address().getHostAddress()).isEqualTo("10.9.9.254");
    assertThat(device.active()).isTrue();
    assertThat(device.linkLayer()).isEqualTo("Ethernet");
  }

  @Test
  void shouldSayWhatHasNoAddressOrNoLink() throws IOException {
    add("mlx5_0", "1: DOWN", "InfiniBand", "fe80:0000:0000:0000:7471:23ff:fe1b:f8f2");
    RdmaDevices.Device device = RdmaDevices.find(sysfs, null).get(0);
    assertThat(device.address()).isNull();
    assertThat(device.active()).isFalse();
  }

  @Test
  void shouldChooseAndOrderAsAsked() throws IOException {
    for (String name : List.of("a0", "a1", "a2")) {
      add(name, "4: ACTIVE", "Ethernet");
    }
    assertThat(names("a2, a0=10.0.0.5")).containsExactly("a2", "a0");
    assertThat(RdmaDevices.find(sysfs, "a2,a0=10.0.0.5").get(1).address().getHostAddress())
        .isEqualTo("10.0.0.5");
    assertThatThrownBy(() -> names("a3"))
        .isInstanceOf(InvalidUsage.class)
        .hasMessageContaining("a3")
        .hasMessageContaining("[a0, a1, a2]");
    for (String wrong : List.of("a0=10.0.0", "a0=10.0.0.256", "a0=host")) {
      assertThatThrownBy(() -> names(wrong))
          .isInstanceOf(InvalidUsage.class)
          .hasMessageContaining("a.b.c.d");
    }
  }

  @Test
  void shouldFindNothingWhereThereIsNothing() {
    assertThat(RdmaDevices.find(sysfs.resolve("absent"), null)).isEmpty();
    assertThat(names(null)).isEmpty();
  }
}
