// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.proxy;

import static io.fluxccl.proxy.ProxyHandlerResult.CONTINUE;
import static java.util.concurrent.TimeUnit.SECONDS;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.concurrent.BlockingTasks;
import io.fluxccl.testing.AllocatedBytes;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Many triggers: none is lost or reordered, and no object is allocated. */
@Timeout(120)
class ProxyThroughputTest extends ProxyFixture {
  private static final int PRODUCERS = 4;
  private static final int EACH = 250_000;

  ProxyThroughputTest() {
    super(512);
  }

  @Test
  void shouldHandleAMillionTriggersInOrderWhenSeveralProducersPush() throws Exception {
    long[] next = new long[PRODUCERS];
    List<String> wrong = new ArrayList<>();
    proxy(
        (first, second, position) -> {
          int from = (int) (first >>> 32);
          // The second word is derived from the first, which reveals torn triggers.
          if (second != (~first & Long.MAX_VALUE) || (first & 0xFFFF_FFFFL) != next[from]) {
            wrong.add(position + ": " + first + "," + second);
          }
          next[from]++;
          return CONTINUE;
        },
        options());
    proxy.start();

    List<CompletableFuture<Boolean>> producers = new ArrayList<>();
    for (int i = 0; i < PRODUCERS; i++) {
      long id = (long) i << 32;
      producers.add(CompletableFuture.supplyAsync(() -> pushAll(id), BlockingTasks.EXECUTOR));
    }
    for (CompletableFuture<Boolean> done : producers) {
      assertThat(done.get(100, SECONDS)).isTrue();
    }
    proxy.stop();

    assertThat(wrong).isEmpty();
    assertThat(next).containsOnly(EACH);
    assertThat(fifo.tail()).isEqualTo((long) PRODUCERS * EACH);
  }

  private boolean pushAll(long id) {
    long position = 0;
    for (long i = 0; i < EACH; i++) {
      position = producer.push(id | i, ~(id | i));
    }
    return producer.sync(position);
  }

  @Test
  void shouldAllocateNothingWhenAMillionTriggersGoThrough() {
    long[] sum = new long[1];
    proxy(
        (first, second, position) -> {
          sum[0] += ChannelTrigger.size(first) + ChannelTrigger.id(second);
          return CONTINUE;
        },
        options());
    long allocated =
        AllocatedBytes.least(
            1,
            () -> {
              sum[0] = 0;
              cycle(1_000_000);
            });
    assertThat(allocated).as("bytes for a million triggers").isZero();
    assertThat(sum[0]).isEqualTo(1_000_000L * 107);
  }

  private void cycle(int triggers) {
    for (int i = 0; i < triggers; i++) {
      long position =
          producer.push(
              ChannelTrigger.first(100, i), ChannelTrigger.second(i, 1, 2, ChannelTrigger.DATA, 7));
      proxy.doWork();
      producer.sync(position);
    }
  }
}
