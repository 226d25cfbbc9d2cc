package io.fluxccl.transport.ethernet;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.host.HostDevice;
import io.fluxccl.device.host.HostMemory;
import org.agrona.DirectBuffer;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(30)
class PostQueueTest {
  private static final int PRODUCERS = 3;
  private static final int POSTS = 100_000;

  /**
   * Checks that what each producer posted comes in order: memory is the producer, offset counts.
   */
  private static final class InOrder implements PostQueue.Sink {
    private final long[] next = new long[PRODUCERS];
    private long taken;

    private void take(long producer, long number) {
      assertThat(number).isEqualTo(next[(int) producer]++);
      taken++;
    }

    @Override
    public boolean write(long memory, long offset, long address, long length) {
      assertThat(address).isEqualTo(offset + 1);
      assertThat(length).isEqualTo(PostQueue.INLINE_LIMIT + 1L);
      take(memory, offset);
      return offset % 3 == 0;
    }

    @Override
    public boolean staged(long memory, long offset, long source, long sourceOffset, long length) {
      assertThat(source).isEqualTo(offset + 2);
      assertThat(sourceOffset).isEqualTo(offset + 3);
      assertThat(length).isEqualTo(offset + 4);
      take(memory, offset);
      return offset % 5 == 0;
    }

    @Override
    public boolean inline(long memory, long offset, DirectBuffer buffer, int index, int length) {
      assertThat(buffer.getLong(index)).isEqualTo(offset);
      assertThat(buffer.getByte(index + length - 1)).isEqualTo((byte) 7);
      take(memory, offset);
      return true;
    }

    @Override
    public boolean update(long memory, long offset, long value) {
      assertThat(value).isEqualTo(-offset);
      take(memory, offset);
      return offset % 7 != 0;
    }

    @Override
    public boolean flush(long ticket) {
      take(ticket % PRODUCERS, ticket / PRODUCERS);
      return true;
    }
  }

  @Test
  void shouldKeepEachProducersOrderWhenTheRingOverflows() throws Exception {
    PostQueue queue = new PostQueue();
    Thread[] producers = new Thread[PRODUCERS];
    for (int i = 0; i < PRODUCERS; i++) {
      int producer = i;
      producers[i] = new Thread(() -> produce(queue, producer));
      producers[i].start();
    }
    InOrder sink = new InOrder();
    long deadline = System.nanoTime() + 25_000_000_000L;
    while (sink.taken < (long) PRODUCERS * POSTS && System.nanoTime() < deadline) {
      queue.drain(sink, 16);
    }
    assertThat(sink.taken).isEqualTo((long) PRODUCERS * POSTS);
    assertThat(queue.isEmpty()).isTrue();
    for (Thread producer : producers) {
      producer.join(1000);
    }
  }

  private static void produce(PostQueue queue, int producer) {
    try (HostDevice device = HostDevice.create();
        DeviceBuffer buffer = device.allocate(PostQueue.INLINE_LIMIT)) {
      for (int i = 0; i < POSTS; i++) {
        switch (i % 5) {
          case 0:
            queue.write(producer, i, i + 1L, PostQueue.INLINE_LIMIT + 1L);
            break;
          case 1:
            int size = 9 + i % 200;
            HostMemory.putLong(buffer.address(), i);
            HostMemory.fill(buffer.address() + 8, size - 8, (byte) 7);
            queue.write(producer, i, buffer.address(), size);
            break;
          case 2:
            queue.staged(producer, i, i + 2L, i + 3L, i + 4L);
            break;
          case 3:
            queue.update(producer, i, -i);
            break;
          default:
            queue.flush((long) i * PRODUCERS + producer);
        }
      }
    }
  }
}
