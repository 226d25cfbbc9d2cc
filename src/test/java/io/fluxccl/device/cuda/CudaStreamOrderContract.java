// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import static org.assertj.core.api.Assertions.assertThat;

import com.sun.management.ThreadMXBean;
import io.fluxccl.device.StreamOrderContract;
import io.fluxccl.device.host.HostDevice;
import java.lang.management.ManagementFactory;
import org.junit.jupiter.api.Test;

/** How streams of GPUs wait for each other. */
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
    ThreadMXBean threads = (ThreadMXBean) ManagementFactory.getThreadMXBean();
    long own = Thread.currentThread().getId();
    long before = 0;
    for (int i = 0; i < 2000; i++) {
      if (i == 1000) {
        await(first.completion());
        before = threads.getThreadAllocatedBytes(own);
      }
      first.branch("b").waitFor(first);
      first.waitFor(first.branch("b"));
    }
    assertThat(threads.getThreadAllocatedBytes(own) - before).isLessThan(1000);
    await(first.completion());
  }
}
