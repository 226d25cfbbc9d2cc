package io.fluxccl.device.cuda;

import static org.assertj.core.api.Assertions.assertThat;

import com.sun.management.ThreadMXBean;
import java.lang.management.ManagementFactory;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(30)
class EnqueueTurnTest {
  private final EnqueueTurn turn = new EnqueueTurn();

  // Guarded by the turn.
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
      if (turn.take()) {
        int others = inside++;
        sum += others == 0 ? 1 : 0;
        inside--;
        turn.leave();
        i++;
      }
    }
  }

  @Test
  void shouldNotWaitForEverForOneWhoIsHeldUp() {
    assertThat(turn.take()).isTrue();
    long began = System.nanoTime();
    assertThat(CompletableFuture.supplyAsync(turn::take).join()).isFalse();
    assertThat(System.nanoTime() - began).isGreaterThanOrEqualTo(EnqueueTurn.PATIENCE.toNanos());
    turn.leave();
    assertThat(CompletableFuture.supplyAsync(turn::take).join()).isTrue();
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
      turn.take();
      turn.leave();
    }
    assertThat(threads.getThreadAllocatedBytes(own) - before).isLessThan(1000);
  }
}
