// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.concurrent;

import static io.fluxccl.testing.FailureAssertions.assertThrows;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.InvalidUsage;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.Test;

class UseCountTest {
  private static final Duration LONG = Duration.ofSeconds(60);

  private final CompletableFuture<Thread> freed = new CompletableFuture<>();
  private final UseCount users =
      new UseCount(() -> BlockingTasks.run(() -> freed.complete(Thread.currentThread())));

  private void close() {
    if (users.beginClose()) {
      users.release();
    }
  }

  @Test
  void shouldRefuseUsersAfterCloseAndReleaseWithTheLast() {
    assertThat(users.isClosed()).isFalse();
    assertThat(users.enter()).isTrue();
    close();
    assertThat(users.isClosed()).isTrue();
    assertThat(users.enter()).isFalse();
    users.retain(); // a user that is inside may add others
    assertThat(users.users()).isEqualTo(2);
    users.release();
    assertThat(freed).isNotDone();
    users.release();
    assertThat(freed).isDone();
    assertThat(users.users()).isZero();
    assertThat(users.tryRetain()).isFalse();
    assertThrows(InvalidUsage.class, users::release);
  }

  @Test
  void shouldNotFreeOnAThreadThatMustNotBlock() throws Exception {
    assertThat(users.enter()).isTrue();
    assertThat(users.enter()).isTrue();
    close();
    close();
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
    close();
    assertThat(freed).isCompletedWithValue(Thread.currentThread());
  }
}
