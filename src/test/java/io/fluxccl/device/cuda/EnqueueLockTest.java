// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import static org.assertj.core.api.Assertions.assertThat;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(30)
class EnqueueLockTest {
  private final EnqueueLock lock = new EnqueueLock();

  // Guarded by the lock.
  private int inside;
  private int sum;

  @Test
  void shouldExcludeOtherThreads() throws Exception {
    CompletableFuture<?>[] threads = new CompletableFuture<?>[3];
    for (int i = 0; i < threads.length; i++) {
      threads[i] = CompletableFuture.runAsync(() -> addOnes(20_000));
    }
    CompletableFuture.allOf(threads).get(20, TimeUnit.SECONDS);
    assertThat(sum).isEqualTo(60_000);
  }

  private void addOnes(int count) {
    for (int i = 0; i < count; ) {
      if (lock.tryLock() != null) {
        int others = inside++;
        sum += others == 0 ? 1 : 0;
        inside--;
        lock.close();
        i++;
      }
    }
  }

  @Test
  void shouldStopWaitingIfTheHolderDoesNotRelease() {
    assertThat(lock.tryLock()).isSameAs(lock);
    long began = System.nanoTime();
    assertThat(CompletableFuture.supplyAsync(lock::tryLock).join()).isNull();
    assertThat(System.nanoTime() - began)
        .isGreaterThanOrEqualTo(EnqueueLock.LOCK_TIMEOUT.toNanos());
    lock.close();
    assertThat(CompletableFuture.supplyAsync(lock::tryLock).join()).isSameAs(lock);
  }
}
