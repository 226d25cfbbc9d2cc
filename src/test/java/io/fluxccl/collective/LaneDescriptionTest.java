// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import static io.fluxccl.testing.FailureAssertions.assertThrows;
import static io.fluxccl.testing.Outcomes.refuses;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.TransportFailure;
import io.fluxccl.bootstrap.LocalBootstrap;
import io.fluxccl.collective.LaneDescription.DeviceDescription;
import io.fluxccl.device.DeviceKind;
import io.fluxccl.transport.TransportFlags;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

/** The descriptions that ranks exchange to open a lane. */
class LaneDescriptionTest {
  private final List<LocalBootstrap> ranks = LocalBootstrap.group(3);

  @AfterEach
  void close() {
    ranks.forEach(LocalBootstrap::close);
  }

  @Test
  void shouldCountTheRanksOfAProcessOnEachGpu() {
    DeviceDescription first = gpu("0000:01:00.0", "", "0000:02:00.0");
    DeviceDescription second = gpu("0000:02:00.0", "");
    List<DeviceDescription> devices = List.of(first, second, first);
    assertThat(DeviceDescription.mostRanksPerGpu(devices, ranks.get(0))).isEqualTo(2);
    assertThat(DeviceDescription.mostRanksPerGpu(List.of(first, first, first), ranks.get(1)))
        .isEqualTo(3);
    // Ranks of one process need no warning: their kernels run concurrently.
    assertThat(DeviceDescription.sharingWarning(devices, ranks.get(0))).isEmpty();
  }

  private static LaneDescription of(DeviceDescription device) {
    return new LaneDescription(-7, 3, device, List.of("families=a,b", "checked=true"));
  }

  private static final DeviceDescription GPU =
      gpu("0000:3b:00.0", "pcie", "0000:3c:00.0", "0000:3d:00.0");

  private static DeviceDescription gpu(String id, String link, String... nvlinks) {
    return new DeviceDescription(
        DeviceKind.CUDA, 132, 90, CollectivesOptions.NETWORKS, id, List.of(nvlinks), link);
  }

  @Test
  void shouldAssumeNvlinkIfOneSideReportsItAndNoneForcesPcie() {
    DeviceDescription alone = gpu("0000:02:00.0", "");
    assertThat(gpu("0000:01:00.0", "", "0000:02:00.0").hasNvlinkTo(alone)).isTrue();
    assertThat(alone.hasNvlinkTo(gpu("0000:01:00.0", "", "0000:02:00.0"))).isTrue();
    assertThat(alone.hasNvlinkTo(alone)).isTrue();
    assertThat(alone.hasNvlinkTo(gpu("0000:01:00.0", "", "0000:03:00.0"))).isFalse();
    assertThat(alone.hasNvlinkTo(gpu("0000:01:00.0", "nvlink"))).isTrue();
    assertThat(alone.hasNvlinkTo(gpu("0000:01:00.0", "pcie", "0000:02:00.0"))).isFalse();
  }

  @Test
  void shouldNameTheFirstTwoGpusOfAHostWithoutAnNvlink() {
    DeviceDescription one = gpu("0000:01:00.0", "", "0000:02:00.0", "0000:03:00.0");
    DeviceDescription two = gpu("0000:02:00.0", "", "0000:01:00.0", "0000:03:00.0");
    DeviceDescription three = gpu("0000:03:00.0", "");
    assertThat(DeviceDescription.withoutNvlinkBecause(List.of(one, two, three), ranks.get(0)))
        .isEmpty();
    assertThat(
            DeviceDescription.withoutNvlinkBecause(
                List.of(one, gpu("0000:02:00.0", ""), three), ranks.get(1)))
        .contains("0000:02:00.0 of rank 1", "0000:03:00.0 of rank 2");
  }

  @Test
  void shouldReadTheDescriptionThatItWrites() {
    assertThat(LaneDescription.decode(of(GPU).encode(), 1)).isEqualTo(of(GPU));
    DeviceDescription host =
        new DeviceDescription(DeviceKind.HOST, 0, 0, TransportFlags.NONE, "", List.of(), "");
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
    // The version, and the sign bits of the thread count, device fields and settings count.
    int header = 6;
    int afterLane = header + Long.BYTES;
    for (int offset : new int[] {4, afterLane + 3, afterLane + 7, afterLane + 11, afterLane + 15}) {
      byte[] bad = good.clone();
      bad[offset] = (byte) 0x80;
      malformed.add(bad);
    }
    for (byte[] bad : malformed) {
      assertThrows(TransportFailure.class, () -> LaneDescription.decode(bad, 3), "rank 3");
    }
  }

  @Test
  void shouldNameTheSettingThatDiffers() {
    LaneDescription other = new LaneDescription(1, 1, GPU, List.of("families=a", "checked=true"));
    refuses(() -> of(GPU).requireSameSettings(0, other, 2), "families=a,b, on rank 2: families=a;");
  }
}
