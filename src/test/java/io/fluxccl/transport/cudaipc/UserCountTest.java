package io.fluxccl.transport.cudaipc;

import static org.assertj.core.api.Assertions.assertThat;

import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.Test;

class UserCountTest {
  private static final Duration LONG = Duration.ofSeconds(60);

  private final CompletableFuture<Thread> letGo = new CompletableFuture<>();
  private final UserCount users = new UserCount(() -> letGo.complete(Thread.currentThread()));

  @Test
  void shouldNotLetGoOnTheThreadOfAUserWhoLeavesLast() {
    assertThat(users.enter()).isTrue();
    assertThat(users.enter()).isTrue();
    users.close();
    users.close();
    users.leave();
    assertThat(letGo).isNotDone();
    assertThat(users.enter()).isFalse();
    users.leave();
    assertThat(letGo).succeedsWithin(LONG).isNotSameAs(Thread.currentThread());
  }

  @Test
  void shouldLetGoAtOnceWhenNobodyIsThere() {
    assertThat(users.enter()).isTrue();
    users.leave();
    assertThat(letGo).isNotDone();
    users.close();
    assertThat(letGo).isCompletedWithValue(Thread.currentThread());
  }
}
