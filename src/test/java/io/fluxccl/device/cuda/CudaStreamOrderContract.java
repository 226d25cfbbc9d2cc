// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.device.StreamOrderContract;
import io.fluxccl.device.host.HostDevice;
import io.fluxccl.testing.AllocatedBytes;
import org.junit.jupiter.api.Test;

/** Waits of GPU streams for each other. */
abstract class CudaStreamOrderContract extends StreamOrderContract {
  CudaStreamOrderContract() {
    super(new CudaTestDevice());
  }

  @Test
  void shouldNotWaitForTheHostDevice() throws Exception {
    try (HostDevice host = HostDevice.create()) {
      assertRefused(() -> first.waitFor(host.createStream("s")));
      assertRefused(() -> host.createStream("s").waitFor(first));
    }
    await(first.completion());
  }

  @Test
  void shouldAllocateNothingToWaitOrToBranch() throws Exception {
    long allocated =
        AllocatedBytes.least(
            10,
            () -> {
              for (int i = 0; i < 1000; i++) {
                first.branch("b").waitFor(first);
                first.waitFor(first.branch("b"));
              }
            });
    assertThat(allocated).as("bytes of 1000 rounds").isLessThan(1000);
    await(first.completion());
  }
}
