// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.communicator;

import static org.assertj.core.api.Assertions.assertThat;
import static org.mockito.ArgumentMatchers.any;
import static org.mockito.Mockito.doAnswer;
import static org.mockito.Mockito.mock;
import static org.mockito.Mockito.when;

import io.fluxccl.Aborted;
import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Consumer;
import org.junit.jupiter.api.Test;

class SetupQueueTest {
  private static final Duration LONG = Duration.ofSeconds(20);
  private static final Deadline DEADLINE = Deadline.after(LONG);

  /** Returns an operation that only ends by failure. */
  private static SetupOperation endless(Consumer<Throwable> failed) {
    SetupOperation operation = mock(SetupOperation.class);
    when(operation.endSetup(any())).thenReturn(new CompletableFuture<>());
    doAnswer(
            call -> {
              failed.accept(call.getArgument(0));
              return null;
            })
        .when(operation)
        .fail(any());
    return operation;
  }

  @Test
  void shouldFailASetupStartedWhileAllOthersAreFailed() {
    FluxCclException reason = new Aborted(1, "no more");
    AtomicReference<FluxCclException> failure = new AtomicReference<>();
    CompletableFuture<Void> failing = new CompletableFuture<>();
    CompletableFuture<Void> asked = new CompletableFuture<>();
    CompletableFuture<Void> othersFailed = new CompletableFuture<>();
    SetupQueue pending =
        new SetupQueue(
            () -> {
              FluxCclException why = failure.get();
              if (why != null) {
                asked.complete(null);
                await(othersFailed);
              }
              return why;
            },
            CompletableFuture::completedFuture);
    CompletableFuture<Void> early =
        pending.start(
            List.of(
                endless(
                    why -> {
                      failing.complete(null);
                      await(asked);
                    })),
            DEADLINE);
    failure.set(reason);
    CompletableFuture<Void> all = CompletableFuture.runAsync(() -> pending.fail(reason));
    await(failing);
    // It starts after the failing thread has passed the queue, and checks once that is done.
    CompletableFuture<Void> late =
        CompletableFuture.supplyAsync(() -> pending.start(List.of(endless(why -> {})), DEADLINE))
            .thenCompose(run -> run);
    await(all);
    othersFailed.complete(null);
    for (CompletableFuture<Void> run : List.of(early, late)) {
      assertThat(run).failsWithin(LONG).withThrowableThat().withCause(reason);
    }
    assertThat(pending.lines()).isEmpty();
  }

  private static void await(CompletableFuture<Void> event) {
    event.orTimeout(30, TimeUnit.SECONDS).join();
  }
}
