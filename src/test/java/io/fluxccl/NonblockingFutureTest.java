// SPDX-License-Identifier: Apache-2.0
package io.fluxccl;

import static io.fluxccl.testing.FailureAssertions.assertThrows;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.assertj.core.api.Assertions.catchThrowable;

import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.assertj.core.api.InstanceOfAssertFactories;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import reactor.core.Disposable;
import reactor.core.scheduler.Schedulers;
import reactor.test.StepVerifier;

@Tag("jdk")
class NonblockingFutureTest {
  private final NonblockingFuture<String> future = NonblockingFuture.queued("connect(rank=3)");

  @Test
  void shouldRefuseToBlockBeforeItIsStarted() {
    assertThrows(IllegalStateException.class, future::join, "connect(rank=3)");
    assertThrows(IllegalStateException.class, future::get);
    assertThrows(IllegalStateException.class, () -> future.get(60, TimeUnit.SECONDS));
  }

  @Test
  void shouldRefuseThroughDerivedFuturesToo() {
    CompletableFuture<Integer> derived = future.thenApply(String::length);
    assertThrows(IllegalStateException.class, derived::join);
    future.start();
    future.complete("done");
    assertThat(derived.join()).isEqualTo(4);
  }

  @Test
  void shouldGiveItsValueOnceStarted() throws Exception {
    future.start();
    future.complete("done");
    assertThat(future.get(60, TimeUnit.SECONDS)).isEqualTo("done");
    StepVerifier.create(future.mono())
        .expectNext("done")
        .expectComplete()
        .verify(Duration.ofSeconds(60));
  }

  @Test
  void shouldRefuseToBlockWhereReactorRefuses() {
    NonblockingFuture<String> started = NonblockingFuture.create();
    CompletableFuture<Throwable> refused = new CompletableFuture<>();
    Schedulers.parallel()
        .schedule(() -> refused.complete(catchThrowable(() -> started.thenApply(x -> x).join())));
    assertThat(refused)
        .succeedsWithin(Duration.ofSeconds(60))
        .isInstanceOf(IllegalStateException.class)
        .asInstanceOf(InstanceOfAssertFactories.THROWABLE)
        .hasMessageContaining("parallel-");
  }

  @Test
  void shouldCompleteLikeTheCopiedStage() {
    CompletableFuture<String> stage = new CompletableFuture<>();
    NonblockingFuture<String> copy = NonblockingFuture.copyOf(stage);
    assertThat(copy).isNotDone();
    stage.complete("done");
    assertThat(copy.join()).isEqualTo("done");
    stage = CompletableFuture.failedFuture(new Timeout(3, "too late"));
    assertThatThrownBy(NonblockingFuture.copyOf(stage)::join).hasCauseInstanceOf(Timeout.class);
  }

  @Test
  void shouldGiveAFailureEvenIfNeverStarted() {
    future.completeExceptionally(new Timeout(3, "too late"));
    assertThatThrownBy(future::join).hasCauseInstanceOf(Timeout.class);
  }

  @Test
  void shouldOutliveACancelledMono() {
    Disposable subscription = future.mono().subscribe();
    subscription.dispose();
    assertThat(future).isNotCancelled();
  }
}
