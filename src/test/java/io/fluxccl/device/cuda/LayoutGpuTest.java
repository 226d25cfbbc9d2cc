// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.testing.RequiresGpus;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** The layout of structures that the device compiler chooses, measured by a kernel. */
@RequiresGpus
class LayoutGpuTest {
  private static final int TIMEOUT_SECONDS = 60;

  @Test
  void shouldLayOutStructuresOnTheDeviceAsTheHostDoes(@TempDir Path folder) throws Exception {
    Map<String, Long> expected = LayoutTest.layouts();
    // A source and a header beside it, as a user has them.
    extract("layout.cuh", folder);
    Path source = extract("layout.cu", folder);

    List<Long> written = new ArrayList<>();
    try (CudaDevice device = CudaDevice.open(0);
        CudaModule module = CudaModule.fromFile(source);
        CudaBuffer out = device.allocate((long) expected.size() * Integer.BYTES)) {
      DeviceStream stream = device.createStream("layout");
      stream.launch(module.kernel("layout"), 1, 1, KernelArgs.of(out));
      stream.completion().get(TIMEOUT_SECONDS, TimeUnit.SECONDS);
      ByteBuffer values =
          ByteBuffer.allocateDirect((int) out.size()).order(ByteOrder.LITTLE_ENDIAN);
      out.download(0, values);
      values.flip();
      expected.forEach((name, value) -> written.add((long) values.getInt()));
      stream.close();
    }

    assertThat(written).containsExactlyElementsOf(expected.values());
  }

  private static Path extract(String name, Path folder) throws Exception {
    Path file = folder.resolve(name);
    try (InputStream in = LayoutGpuTest.class.getResourceAsStream("/cuda/" + name)) {
      Files.copy(in, file);
    }
    return file;
  }
}
