// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.InvalidUsage;
import io.fluxccl.TransportFailure;
import io.fluxccl.bootstrap.LocalBootstrap;
import io.fluxccl.device.DeviceKind;
import io.fluxccl.transport.TransportFlags;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.junit.jupiter.api.Test;

/** The descriptions that ranks exchange to open a lane. */
class LaneDescriptionTest {
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
      assertThat(DeviceDescription.mostRanksPerGpu(devices, ranks.get(0))).isEqualTo(2);
      assertThat(DeviceDescription.mostRanksPerGpu(List.of(first, first, first), ranks.get(1)))
          .isEqualTo(3);
      // They are one process, in which kernels run side by side.
      assertThat(DeviceDescription.sharingWarning(devices, ranks.get(0))).isEmpty();
    } finally {
      ranks.forEach(LocalBootstrap::close);
    }
  }

  private static LaneDescription of(DeviceDescription device) {
    return new LaneDescription(-7, 3, device, List.of("families=a,b", "checked=true"));
  }

  private static final DeviceDescription GPU =
      new DeviceDescription(DeviceKind.CUDA, 132, 90, CollectivesOptions.NETWORKS, "0000:3b:00.0");

  @Test
  void shouldReadTheDescriptionThatItWrites() {
    assertThat(LaneDescription.decode(of(GPU).encode(), 1)).isEqualTo(of(GPU));
    DeviceDescription host = new DeviceDescription(DeviceKind.HOST, 0, 0, TransportFlags.NONE, "");
    assertThat(LaneDescription.decode(of(host).encode(), 1)).isEqualTo(of(host));
  }

  @Test
  void shouldRefuseAMalformedDescription() {
    byte[] good = of(GPU).encode();
    List<byte[]> malformed = new ArrayList<>();
    for (int length = 0; length < good.length; length++) {
      malformed.add(Arrays.copyOf(good, length));
    }
    malformed.add(Arrays.copyOf(good, good.length + 1));
    // The version, the sign bits of the threads, of the device's fields and of the settings' count.
    int header = 6;
    int afterLane = header + Long.BYTES;
    for (int offset : new int[] {4, afterLane + 3, afterLane + 7, afterLane + 11, afterLane + 15}) {
      byte[] bad = good.clone();
      bad[offset] = (byte) 0x80;
      malformed.add(bad);
    }
    for (byte[] bad : malformed) {
      assertThatThrownBy(() -> LaneDescription.decode(bad, 3))
          .isInstanceOf(TransportFailure.class)
          .hasMessageContaining("rank 3");
    }
  }

  @Test
  void shouldNameTheSettingThatDiffers() {
    LaneDescription other = new LaneDescription(1, 1, GPU, List.of("families=a", "checked=true"));
    assertThatThrownBy(() -> of(GPU).requireSameSettings(0, other, 2))
        .isInstanceOf(InvalidUsage.class)
        .hasMessageContaining("families=a,b, on rank 2: families=a;");
  }
}
