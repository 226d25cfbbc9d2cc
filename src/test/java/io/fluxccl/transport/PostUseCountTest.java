// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.concurrent.BlockingTasks;
import io.fluxccl.concurrent.NonblockingThread;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.Test;

class PostUseCountTest {
  private static final Duration LONG = Duration.ofSeconds(60);

  private final CompletableFuture<Thread> freed = new CompletableFuture<>();
  private final PostUseCount users =
      new PostUseCount(() -> BlockingTasks.run(() -> freed.complete(Thread.currentThread())));

  @Test
  void shouldNotFreeOnAThreadThatMustNotBlock() throws Exception {
    assertThat(users.enter()).isTrue();
    assertThat(users.enter()).isTrue();
    users.close();
    users.close();
    users.release();
    assertThat(freed).isNotDone();
    assertThat(users.enter()).isFalse();
    Thread proxy = new NonblockingThread(users::release, "proxy");
    proxy.start();
    proxy.join();
    assertThat(freed).succeedsWithin(LONG).isNotSameAs(proxy);
    assertThat(users.enter()).isFalse();
  }

  @Test
  void shouldFreeAtOnceWhenThereIsNoUser() {
    assertThat(users.enter()).isTrue();
    users.release();
    assertThat(freed).isNotDone();
    users.close();
    assertThat(freed).isCompletedWithValue(Thread.currentThread());
  }
}
