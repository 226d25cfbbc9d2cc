// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.host;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.DeviceFailure;
import io.fluxccl.device.DeviceGraph;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.GraphContract;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.PinnedBuffer;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;

class HostGraphTest extends GraphContract {
  HostGraphTest() {
    super(new HostTestDevice());
  }

  /** One kernel, because a closed stream drops those that have not begun. */
  @Override
  protected void announceAndWaitAt(PinnedBuffer gate, DeviceStream stream) {
    HostKernel announces =
        HostKernel.of(
            "announces",
            (thread, args) -> {
              words.buffer().putLongRelease(24, 1);
              while (gate.buffer().getLongAcquire(0) == 0) {
                Thread.onSpinWait();
              }
            });
    stream.launch(announces, 1, 1, KernelArgs.NONE);
  }

  @Test
  void shouldReportTheFailureOfEachLaunch() throws Exception {
    AtomicInteger launches = new AtomicInteger();
    HostKernel sometimes =
        HostKernel.of(
            "sometimes",
            (thread, args) -> {
              if (launches.incrementAndGet() % 2 == 0) {
                throw new IllegalStateException("launch " + launches);
              }
            });
    DeviceGraph graph =
        graphOf(
            stream -> {
              stream.branch("b").launch(sometimes, 1, 1, KernelArgs.NONE);
              stream.writeValue(words, 0, 1);
            });
    for (int i = 1; i <= 10; i++) {
      CompletableFuture<Void> done = first.launch(graph).completion();
      if (i % 2 == 1) {
        await(done);
      } else {
        assertThatThrownBy(() -> await(done))
            .hasCauseInstanceOf(DeviceFailure.class)
            .hasMessageContaining("kernel sometimes")
            .hasRootCauseMessage("launch " + i);
      }
    }
  }

  @Test
  void shouldDropTheRestOfALaunchWhenItsStreamIsClosed() throws Exception {
    AtomicInteger ran = new AtomicInteger();
    CountDownLatch begun = new CountDownLatch(1);
    HostKernel counting = HostKernel.of("counting", (thread, args) -> ran.incrementAndGet());
    HostKernel begins = HostKernel.of("begins", (thread, args) -> begun.countDown());
    PinnedBuffer gate = gate();
    DeviceGraph graph =
        graphOf(
            stream -> {
              DeviceStream branch = stream.branch("b");
              branch.launch(begins, 1, 1, KernelArgs.NONE);
              waitAt(gate, branch);
              branch.launch(counting, 1, 1, KernelArgs.NONE);
              stream.waitFor(branch).launch(counting, 1, 1, KernelArgs.NONE);
            });
    first.launch(graph).launch(graph);
    assertThat(begun.await(40, TimeUnit.SECONDS)).isTrue();
    CompletableFuture<Void> onOther = second.launch(graph).completion();
    first.close();
    open(gate);
    await(onOther); // after the dropped launches of the first stream
    assertThat(ran).hasValue(2);
  }
}
