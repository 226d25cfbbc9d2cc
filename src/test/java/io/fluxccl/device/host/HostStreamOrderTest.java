// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.host;

import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.Aborted;
import io.fluxccl.DeviceFailure;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.PinnedBuffer;
import io.fluxccl.device.StreamOrderContract;
import java.util.concurrent.CompletableFuture;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.Test;

class HostStreamOrderTest extends StreamOrderContract {
  private static final HostKernel FAILING =
      HostKernel.of(
          "failing",
          (thread, args) -> {
            throw new IllegalStateException("broken");
          });

  HostStreamOrderTest() {
    super(new HostTestDevice());
  }

  @Test
  void shouldReportAFailureOnceToEachWaitingStream() throws Exception {
    DeviceStream branch = first.branch("b");
    branch.launch(FAILING, 1, 1, KernelArgs.NONE);
    CompletableFuture<Void> joined = first.waitFor(branch).completion();
    assertThatThrownBy(() -> await(joined))
        .hasCauseInstanceOf(DeviceFailure.class)
        .hasRootCauseMessage("broken");
    for (int i = 0; i < 3; i++) {
      branch.waitFor(first).writeValue(words, 0, i);
      await(first.waitFor(branch).completion());
    }
    CompletableFuture<Void> second = this.second.waitFor(branch).completion(); // no failure yet
    assertThatThrownBy(() -> await(second)).hasRootCauseMessage("broken");
    assertThatThrownBy(() -> await(branch.completion())).hasRootCauseMessage("broken");
    await(this.second.waitFor(branch).completion());
  }

  @Test
  void shouldFailTheWaitIfAwaitedWorkWasDropped() {
    PinnedBuffer gate = hold(first);
    first.writeValue(words, 0, 1);
    CompletableFuture<Void> done = second.waitFor(first).completion();
    first.close();
    open(gate);
    assertThatThrownBy(() -> await(done))
        .hasCauseInstanceOf(Aborted.class)
        .hasMessageContaining("first was closed");
  }

  @Test
  void shouldEndTheThreadOfAStreamThatIsClosedWhileItWaits() {
    PinnedBuffer gate = hold(first);
    second.waitFor(first).writeValue(words, 0, 1);
    second.close();
    Awaitility.await().until(() -> HostTestDevice.threadsNamed("fluxccl-host-0-second") == 0);
    open(gate);
  }

  @Test
  void shouldWakeIfTheAwaitedKernelTakesLong() throws Exception {
    // Long enough for the waiting thread to sleep: it has to be woken.
    PinnedBuffer gate = hold(first);
    CompletableFuture<Void> done = second.waitFor(first).completion();
    Awaitility.await()
        .until(
            () ->
                Thread.getAllStackTraces().keySet().stream()
                    .filter(thread -> thread.getName().equals("fluxccl-host-0-second"))
                    .anyMatch(thread -> thread.getState() == Thread.State.WAITING));
    open(gate);
    await(done);
  }
}
