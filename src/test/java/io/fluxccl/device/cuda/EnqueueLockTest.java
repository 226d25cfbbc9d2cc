package io.fluxccl.device.cuda;

import static org.assertj.core.api.Assertions.assertThat;

import com.sun.management.ThreadMXBean;
import java.lang.management.ManagementFactory;
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
  void shouldLetOneThreadInAtATime() throws Exception {
    CompletableFuture<?>[] threads = new CompletableFuture<?>[3];
    for (int i = 0; i < threads.length; i++) {
      threads[i] = CompletableFuture.runAsync(() -> addOnes(20_000));
    }
    CompletableFuture.allOf(threads).get(20, TimeUnit.SECONDS);
    assertThat(sum).isEqualTo(60_000);
  }

  private void addOnes(int count) {
    for (int i = 0; i < count; ) {
      if (lock.tryLock()) {
        int others = inside++;
        sum += others == 0 ? 1 : 0;
        inside--;
        lock.unlock();
        i++;
      }
    }
  }

  @Test
  void shouldNotWaitForEverForOneWhoIsHeldUp() {
    assertThat(lock.tryLock()).isTrue();
    long began = System.nanoTime();
    assertThat(CompletableFuture.supplyAsync(lock::tryLock).join()).isFalse();
    assertThat(System.nanoTime() - began).isGreaterThanOrEqualTo(EnqueueLock.PATIENCE.toNanos());
    lock.unlock();
    assertThat(CompletableFuture.supplyAsync(lock::tryLock).join()).isTrue();
  }

  @Test
  void shouldAllocateNothing() {
    ThreadMXBean threads = (ThreadMXBean) ManagementFactory.getThreadMXBean();
    long own = Thread.currentThread().getId();
    long before = 0;
    for (int i = 0; i < 20_000; i++) {
      if (i == 10_000) {
        before = threads.getThreadAllocatedBytes(own);
      }
      lock.tryLock();
      lock.unlock();
    }
    assertThat(threads.getThreadAllocatedBytes(own) - before).isLessThan(1000);
  }
}
