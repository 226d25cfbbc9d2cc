package io.fluxccl.netplugin.ib;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.InvalidUsage;
import io.fluxccl.netplugin.tcp.TcpNetPluginProvider;
import io.fluxccl.transport.ib.IbTransport;
import java.io.IOException;
import java.net.Inet4Address;
import java.net.InetAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Devices as the kernel would show them, in a folder of files. */
class IbNetDeviceTest {
  @TempDir private Path sysfs;

  private IbNetDevice read(String name) throws IOException {
    return IbNetDevice.read(
        sysfs, name, (Inet4Address) InetAddress.getByAddress(new byte[] {10, 0, 0, 1}));
  }

  @Test
  void shouldReadSpeedPlaceAndNumberOfHardware() throws IOException {
    Path folder = Files.createDirectories(sysfs.resolve("mlx5_0"));
    Files.createDirectories(folder.resolve("ports/1"));
    Files.writeString(folder.resolve("ports/1/rate"), "400 Gb/sec (4X NDR)\n");
    Files.writeString(folder.resolve("node_guid"), "b83f:d203:00aa:1234\n");
    Files.writeString(folder.resolve("hca_type"), "MT4129\n");
    Path card = Files.createDirectories(sysfs.resolve("0000:3b:00.0"));
    Files.createSymbolicLink(folder.resolve("device"), card);
    IbNetDevice device = read("mlx5_0");
    assertThat(device.speedMbps()).isEqualTo(400_000);
    assertThat(device.guid()).isEqualTo(0xb83fd20300aa1234L);
    assertThat(device.pciPath()).isEqualTo(card.toRealPath().toString());
    assertThat(IbNetDevice.isHardware(sysfs, "mlx5_0")).isTrue();
    assertThat(device.properties().name()).isEqualTo("mlx5_0");
  }

  @Test
  void shouldTellAnEmulatedDevice() throws IOException {
    Path folder = Files.createDirectories(sysfs.resolve("rxe0"));
    Files.writeString(folder.resolve("parent"), "eth0\n");
    IbNetDevice device = read("rxe0");
    assertThat(IbNetDevice.isHardware(sysfs, "rxe0")).isFalse();
    assertThat(device.pciPath()).isNull();
    assertThat(device.speedMbps()).isEqualTo(IbNetDevice.UNKNOWN_SPEED_MBPS);
  }

  @Test
  void shouldTakeTheTimeoutFromTheEnvironment() {
    assertThat(IbNetOptions.fromEnvironment(name -> null)).isEqualTo(IbNetOptions.DEFAULT);
    assertThat(
            IbNetOptions.fromEnvironment(
                    name -> name.equals("FLUXCCL_NET_TIMEOUT") ? " 2.5 " : null)
                .timeout())
        .isEqualTo(Duration.ofMillis(2500));
    assertThatThrownBy(() -> IbNetOptions.fromEnvironment(name -> "soon"))
        .isInstanceOf(InvalidUsage.class)
        .hasMessageContaining("FLUXCCL_NET_TIMEOUT=soon");
  }

  @Test
  void shouldStandBelowTcp() {
    IbNetPluginProvider provider = new IbNetPluginProvider();
    assertThat(provider.name()).isEqualTo("fluxccl-ib");
    assertThat(IbTransport.getIbDeviceCount() > 0 || provider.unavailableBecause().isPresent())
        .isTrue();
    assertThat(provider.priority()).isLessThan(new TcpNetPluginProvider().priority());
  }
}
