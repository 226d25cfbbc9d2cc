package io.fluxccl.collective;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.TransportFailure;
import io.fluxccl.bootstrap.LocalBootstrap;
import io.fluxccl.device.DeviceKind;
import io.fluxccl.transport.TransportFlags;
import java.util.List;
import org.junit.jupiter.api.Test;

/** What ranks know of each other's GPUs. */
class GpuSharingTest {
  @Test
  void shouldCountTheRanksOfAProcessOnEachGpu() {
    DeviceDescription first =
        new DeviceDescription(
            DeviceKind.CUDA, 132, 90, CollectivesOptions.NETWORKS, "0000:01:00.0");
    DeviceDescription second =
        new DeviceDescription(
            DeviceKind.CUDA, 132, 90, CollectivesOptions.NETWORKS, "0000:02:00.0");
    List<LocalBootstrap> ranks = LocalBootstrap.group(3);
    try {
      List<DeviceDescription> devices = List.of(first, second, first);
      assertThat(GpuSharing.mostRanks(devices, ranks.get(0))).isEqualTo(2);
      assertThat(GpuSharing.mostRanks(List.of(first, first, first), ranks.get(1))).isEqualTo(3);
      // They are one process, in which kernels run side by side.
      assertThat(GpuSharing.remark(devices, ranks.get(0))).isEmpty();
    } finally {
      ranks.forEach(LocalBootstrap::close);
    }
  }

  @Test
  void shouldReadTheCardThatItWrites() {
    DeviceDescription card =
        new DeviceDescription(
            DeviceKind.CUDA, 132, 90, CollectivesOptions.NETWORKS, "0000:3b:00.0");
    assertThat(DeviceDescription.decode(card.encode(), 1)).isEqualTo(card);
    DeviceDescription host = new DeviceDescription(DeviceKind.HOST, 0, 0, TransportFlags.NONE, "");
    assertThat(DeviceDescription.decode(host.encode(), 1)).isEqualTo(host);
  }

  @Test
  void shouldTrustNoCard() {
    byte[] good =
        new DeviceDescription(DeviceKind.CUDA, 132, 90, CollectivesOptions.NETWORKS, "0000:3b:00.0")
            .encode();
    byte[] version = good.clone();
    version[0] = 9;
    byte[] kind = good.clone();
    kind[1] = -1;
    byte[] blocks = good.clone();
    blocks[5] = -1;
    byte[] capability = good.clone();
    capability[9] = -1;
    byte[] networks = good.clone();
    networks[13] = 0x40;
    for (byte[] bad :
        new byte[][] {{}, {1, 1, 1}, version, kind, blocks, capability, networks, new byte[500]}) {
      assertThatThrownBy(() -> DeviceDescription.decode(bad, 3))
          .isInstanceOf(TransportFailure.class)
          .hasMessageContaining("rank 3");
    }
  }
}
