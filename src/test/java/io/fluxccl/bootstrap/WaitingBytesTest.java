// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import static io.fluxccl.bootstrap.Mailboxes.WaitingBytes.OVERHEAD;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.bootstrap.Mailboxes.StreamKey;
import io.fluxccl.bootstrap.Mailboxes.StreamKey.Space;
import io.fluxccl.bootstrap.Mailboxes.WaitingBytes;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.Test;

/** Limits of the bytes that wait to be received. */
class WaitingBytesTest {
  private static final byte[] EMPTY = {};

  @Test
  void shouldCountMessagesWithoutBytesToo() {
    WaitingBytes waiting = new WaitingBytes(3, 10 * OVERHEAD);
    for (int i = 0; i < 10; i++) {
      assertThat(waiting.hasRoom(EMPTY)).isTrue();
      waiting.add(i % 4 == 0 ? 1 : 2, WaitingBytes.of(EMPTY));
    }
    assertThat(waiting.hasRoom(EMPTY)).isFalse();
    assertThat(waiting.fullest()).isEqualTo(2);
    waiting.add(2, -2 * WaitingBytes.of(EMPTY));
    assertThat(waiting.hasRoom(new byte[OVERHEAD])).isTrue();
    assertThat(waiting.hasRoom(new byte[OVERHEAD + 1])).isFalse();
    waiting.clear();
    assertThat(waiting.hasRoom(new byte[1 << 20])).as("the first one").isTrue();
  }

  @Test
  void shouldCountMessagesWaitingInAMailbox() {
    Mailboxes boxes = new Mailboxes(2);
    StreamKey key = new StreamKey(1, Space.TAGGED, 5, 0);
    byte[] large = new byte[(int) Math.min(WaitingBytes.LIMIT, 1 << 20)];
    boxes.deliver(key, large);
    assertThat(boxes.unreceived.fullest()).isEqualTo(1);
    assertThat(boxes.poll(key)).isSameAs(large);
    boxes.deliver(key, EMPTY);
    boxes.abandon(key);
    assertThat(boxes.unreceived.fullest()).as("no rank has any").isZero();
  }

  @Test
  void shouldGiveTheMessageOfACancelledReceiverToTheNext() {
    Mailboxes boxes = new Mailboxes(2);
    StreamKey key = new StreamKey(1, Space.TAGGED, 5, 0);
    CompletableFuture<byte[]> cancelled = new CompletableFuture<>();
    CompletableFuture<byte[]> kept = new CompletableFuture<>();
    boxes.receive(key, cancelled);
    boxes.receive(key, kept);
    cancelled.cancel(true);
    boxes.deliver(key, EMPTY);
    assertThat(kept).isCompletedWithValue(EMPTY);
  }
}
