// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import static io.fluxccl.testing.FailureAssertions.assertThrows;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.device.DeviceGraph;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.testing.FakeCuda;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.Test;

@FakeCuda
class CudaGraphFakeTest extends CudaGraphContract {
  private long freeMemory() {
    return CudaMemoryContract.free((CudaDevice) device);
  }

  /** The fake driver takes memory for events and graphs. */
  @Test
  void shouldReleaseEventsAndGraphs() throws Exception {
    long before = freeMemory();
    for (int i = 0; i < 20; i++) {
      try (DeviceStream stream = device.createStream("s");
          DeviceGraph graph =
              device.record("g", s -> s.branch("b").waitFor(s).writeValue(words, 0, 1))) {
        assertThat(freeMemory()).isLessThan(before);
        stream.branch("b").waitFor(stream);
        stream.launch(graph).waitFor(stream.branch("b"));
        assertThrows(
            IllegalStateException.class,
            () ->
                device.record(
                    "bad",
                    s -> {
                      s.branch("b");
                      throw new IllegalStateException();
                    }));
        await(stream.completion());
      }
    }
    Awaitility.await().until(() -> freeMemory() == before);
  }
}
