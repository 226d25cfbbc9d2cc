// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport;

import static org.assertj.core.api.Assertions.assertThat;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(30)
class PostQueueTest {
  private final PostQueue<Object> queue = new PostQueue<>();

  @Test
  void shouldReportFullAtTheLimitAndStillAcceptPosts() {
    for (int i = 0; i < PostQueue.LIMIT - 1; i++) {
      queue.update(null, 0, i);
    }
    assertThat(queue.isFull()).isFalse();
    queue.update(null, 0, 0);
    assertThat(queue.isFull()).isTrue();
    assertThat(queue.update(null, 0, 0)).isTrue();
    queue.type();
    queue.pop();
    queue.pop();
    assertThat(queue.isFull()).isFalse();
  }

  @Test
  void shouldTakeNothingOnceClosed() {
    queue.update(null, 8, 9);
    queue.close();
    assertThat(queue.update(null, 0, 0)).isFalse();
    assertThat(queue.write(null, 0, null, 0, 1)).isFalse();
    assertThat(queue.flush()).isZero();
    assertThat(queue.type()).isEqualTo(PostQueue.UPDATE);
    queue.pop();
    assertThat(queue.type()).isEqualTo(PostQueue.NONE);
  }

  @Test
  void shouldKeepEachThreadsOrderAndGiveTicketsInTheOrderOfTheQueue() throws Exception {
    int threads = 4;
    int each = 20_000;
    List<CompletableFuture<Void>> posters = new ArrayList<>();
    for (int thread = 0; thread < threads; thread++) {
      int id = thread;
      posters.add(
          CompletableFuture.runAsync(
              () -> {
                for (int i = 1; i <= each; i++) {
                  queue.update(null, id, i);
                  if (i % 100 == 0) {
                    queue.flush();
                  }
                }
              }));
    }
    long[] last = new long[threads];
    long lastTicket = 0;
    int taken = 0;
    while (taken < threads * (each + each / 100)) {
      int type = queue.type();
      if (type == PostQueue.NONE) {
        Thread.onSpinWait();
        continue;
      }
      if (type == PostQueue.FLUSH) {
        assertThat(queue.targetOffset()).isEqualTo(++lastTicket);
      } else {
        assertThat(queue.sourceOffset()).isEqualTo(++last[(int) queue.targetOffset()]);
      }
      queue.pop();
      taken++;
    }
    CompletableFuture.allOf(posters.toArray(CompletableFuture[]::new)).join();
    assertThat(last).containsOnly(each);
    assertThat(lastTicket).isEqualTo(threads * each / 100);
  }
}
