// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device;

import static io.fluxccl.testing.FailureAssertions.assertRefused;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.device.host.HostDevice;
import java.util.Arrays;
import java.util.List;
import org.agrona.MutableDirectBuffer;
import org.junit.jupiter.api.Test;

class DeviceHandleTest {
  private record Handle(int handleLength, byte content) implements DeviceHandle {
    @Override
    public void writeHandle(MutableDirectBuffer target, int offset) {
      target.setMemory(offset, handleLength, content);
    }
  }

  @Test
  void shouldUploadHandlesByIndexAndZerosForNulls() {
    List<Handle> handles = Arrays.asList(new Handle(8, (byte) 1), null, new Handle(8, (byte) 3));
    try (HostDevice device = HostDevice.create();
        DeviceBuffer memory = DeviceHandle.upload(device, handles)) {
      byte[] bytes = new byte[24];
      memory.download(0, bytes);
      byte[] expected = new byte[24];
      Arrays.fill(expected, 0, 8, (byte) 1);
      Arrays.fill(expected, 16, 24, (byte) 3);
      assertThat(bytes).isEqualTo(expected);
    }
  }

  @Test
  void shouldRefuseHandlesOfDifferentLengthsOrOnlyNulls() {
    try (HostDevice device = HostDevice.create()) {
      assertRefused(
          () ->
              DeviceHandle.upload(
                  device, List.of(new Handle(8, (byte) 1), new Handle(16, (byte) 1))));
      assertRefused(() -> DeviceHandle.upload(device, Arrays.asList(null, null)));
    }
  }
}
