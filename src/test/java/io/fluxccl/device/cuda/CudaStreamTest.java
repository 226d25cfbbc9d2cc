// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.device.DeviceHandle;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.testing.RequiresGpus;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.concurrent.TimeUnit;
import org.agrona.MutableDirectBuffer;
import org.junit.jupiter.api.Test;

@RequiresGpus
class CudaStreamTest extends CudaStreamContract {
  @Test
  void shouldPassArgumentsByValue() {
    DeviceHandle handle =
        new DeviceHandle() {
          @Override
          public int handleLength() {
            return 24;
          }

          @Override
          public void writeHandle(MutableDirectBuffer target, int offset) {
            target.putLong(offset, 1);
            target.putLong(offset + 8, 2);
            target.putLong(offset + 16, 3);
          }
        };
    ByteBuffer bytes = ByteBuffer.allocate(24).order(ByteOrder.LITTLE_ENDIAN);
    bytes.putLong(1).putLong(2).putLong(3).flip();
    try (CudaDevice device = CudaDevice.open(0);
        CudaBuffer result = device.allocate(64)) {
      CudaStream stream = device.createStream("arguments");
      for (Object structure : new Object[] {handle, bytes, bytes.array()}) {
        result.upload(0, new byte[64]);
        stream.launch(
            StreamKernels.STORE_ARGUMENTS,
            1,
            1,
            KernelArgs.of(result, structure, -4, 5.5f, -6.25, 7L));
        assertThat(stream.completion()).succeedsWithin(60, TimeUnit.SECONDS);
        ByteBuffer found = ByteBuffer.allocate(64).order(ByteOrder.LITTLE_ENDIAN);
        result.download(0, found);
        assertThat(found.getLong(0)).isEqualTo(1);
        assertThat(found.getLong(8)).isEqualTo(2);
        assertThat(found.getLong(16)).isEqualTo(3);
        assertThat(found.getInt(24)).isEqualTo(-4);
        assertThat(found.getFloat(28)).isEqualTo(5.5f);
        assertThat(found.getDouble(32)).isEqualTo(-6.25);
        assertThat(found.getLong(40)).isEqualTo(7);
      }
    }
  }
}
