package io.fluxccl.transport.ethernet;

import io.fluxccl.device.host.HostMemory;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicInteger;
import org.agrona.BufferUtil;
import org.agrona.DirectBuffer;
import org.agrona.MutableDirectBuffer;
import org.agrona.concurrent.ControlledMessageHandler;
import org.agrona.concurrent.UnsafeBuffer;
import org.agrona.concurrent.ringbuffer.ManyToOneRingBuffer;
import org.agrona.concurrent.ringbuffer.RingBufferDescriptor;

/**
 * What was posted on a connection and the event loop has not taken yet. Any thread posts, the event
 * loop takes. A ring without locks and without garbage; when it is full, posts spill into a list
 * instead of blocking. What one thread posts is taken in the order posted.
 */
final class PostQueue {
  /** Writes up to this length are copied when posted; longer ones are sent from where they are. */
  static final int INLINE_LIMIT = 2048;

  private static final int RING_LENGTH = 256 * 1024;
  private static final int WRITE = 1;
  private static final int INLINE = 2;
  private static final int UPDATE = 3;
  private static final int FLUSH = 4;
  private static final int STAGED = 5;
  private static final int FIELDS_LENGTH = 24;

  /** Takes what was posted. Each method returns whether it can take more now. */
  interface Sink {
    boolean write(long memory, long offset, long address, long length);

    /** A write from memory that sockets can't reach, named by its id in this rank's table. */
    boolean staged(long memory, long offset, long source, long sourceOffset, long length);

    boolean inline(long memory, long offset, DirectBuffer buffer, int index, int length);

    boolean update(long memory, long offset, long value);

    boolean flush(long ticket);
  }

  private final ManyToOneRingBuffer ring;
  private final ConcurrentLinkedQueue<Spilled> spilled = new ConcurrentLinkedQueue<>();

  /**
   * Posts in {@link #spilled}: while there are any, all posts go there, which keeps each thread's
   * order.
   */
  private final AtomicInteger spilledCount = new AtomicInteger();

  private final ControlledMessageHandler handler = this::onMessage;
  private Sink sink;

  PostQueue() {
    ring =
        new ManyToOneRingBuffer(
            new UnsafeBuffer(
                BufferUtil.allocateDirectAligned(
                    RING_LENGTH + RingBufferDescriptor.TRAILER_LENGTH, 64)));
  }

  /**
   * Posts a write. Its plain loads and the caller's earlier stores come before the ring's commit
   * (release), which pairs with the event loop's acquiring read of the record.
   */
  void write(long memory, long offset, long address, long length) {
    if (length > INLINE_LIMIT) {
      post(WRITE, memory, offset, address, length);
      return;
    }
    int size = (int) length;
    int index = claim(INLINE, FIELDS_LENGTH + size);
    if (index < 0) {
      byte[] copy = new byte[size];
      new UnsafeBuffer(address, size).getBytes(0, copy);
      spill(INLINE, memory, offset, 0, copy);
      return;
    }
    MutableDirectBuffer buffer = ring.buffer();
    buffer.putLong(index, memory);
    buffer.putLong(index + 8, offset);
    HostMemory.copy(buffer.addressOffset() + index + FIELDS_LENGTH, address, size);
    ring.commit(index);
  }

  /** Posts a write from memory that sockets can't reach. */
  void staged(long memory, long offset, long source, long sourceOffset, long length) {
    int index = claim(STAGED, FIELDS_LENGTH + 16);
    if (index < 0) {
      add(
          new Spilled(
              ring.producerPosition(), STAGED, memory, offset, source, sourceOffset, length));
      return;
    }
    MutableDirectBuffer buffer = ring.buffer();
    buffer.putLong(index, memory);
    buffer.putLong(index + 8, offset);
    buffer.putLong(index + 16, source);
    buffer.putLong(index + 24, sourceOffset);
    buffer.putLong(index + 32, length);
    ring.commit(index);
  }

  void update(long memory, long offset, long value) {
    post(UPDATE, memory, offset, value, 0);
  }

  void flush(long ticket) {
    post(FLUSH, ticket, 0, 0, 0);
  }

  /** Whether nothing waits. */
  boolean isEmpty() {
    return ring.size() == 0 && spilledCount.get() == 0;
  }

  /**
   * Hands some of what waits to the sink, until it can take no more. Called from the event loop.
   *
   * @return how many were handed over
   */
  int drain(Sink to, int limit) {
    sink = to;
    int taken;
    long position;
    do {
      // A read may take nothing but the padding at the ring's end.
      position = ring.consumerPosition();
      taken = ring.controlledRead(handler, limit);
    } while (taken == 0 && ring.consumerPosition() != position);
    // A spilled post follows what was in the ring when it came, and only that.
    Spilled next = taken == 0 ? spilled.peek() : null;
    if (next != null && ring.consumerPosition() >= next.ringPosition) {
      spilled.poll();
      spilledCount.decrementAndGet();
      next.to(to);
      return 1;
    }
    return taken;
  }

  private void post(int type, long a, long b, long c, long d) {
    int index = claim(type, FIELDS_LENGTH + 8);
    if (index < 0) {
      spill(type, a, b, c, d);
      return;
    }
    MutableDirectBuffer buffer = ring.buffer();
    buffer.putLong(index, a);
    buffer.putLong(index + 8, b);
    buffer.putLong(index + 16, c);
    buffer.putLong(index + 24, d);
    ring.commit(index);
  }

  private int claim(int type, int length) {
    return spilledCount.get() > 0 ? -1 : ring.tryClaim(type, length);
  }

  private void spill(int type, long a, long b, long c, long d) {
    add(new Spilled(ring.producerPosition(), type, a, b, c, d, 0));
  }

  private void spill(int type, long a, long b, long c, byte[] copy) {
    add(new Spilled(ring.producerPosition(), type, a, b, c, 0, 0, copy));
  }

  private void add(Spilled post) {
    spilledCount.incrementAndGet();
    spilled.add(post);
  }

  private ControlledMessageHandler.Action onMessage(
      int type, MutableDirectBuffer buffer, int index, int length) {
    long a = buffer.getLong(index);
    long b = buffer.getLong(index + 8);
    boolean more;
    switch (type) {
      case WRITE:
        more = sink.write(a, b, buffer.getLong(index + 16), buffer.getLong(index + 24));
        break;
      case STAGED:
        more =
            sink.staged(
                a,
                b,
                buffer.getLong(index + 16),
                buffer.getLong(index + 24),
                buffer.getLong(index + 32));
        break;
      case INLINE:
        more = sink.inline(a, b, buffer, index + FIELDS_LENGTH, length - FIELDS_LENGTH);
        break;
      case UPDATE:
        more = sink.update(a, b, buffer.getLong(index + 16));
        break;
      default:
        more = sink.flush(a);
    }
    return more ? ControlledMessageHandler.Action.CONTINUE : ControlledMessageHandler.Action.BREAK;
  }

  private record Spilled(
      long ringPosition, int type, long a, long b, long c, long d, long e, byte[] copy) {
    Spilled(long ringPosition, int type, long a, long b, long c, long d, long e) {
      this(ringPosition, type, a, b, c, d, e, null);
    }

    void to(Sink sink) {
      switch (type) {
        case WRITE:
          sink.write(a, b, c, d);
          break;
        case STAGED:
          sink.staged(a, b, c, d, e);
          break;
        case INLINE:
          sink.inline(a, b, new UnsafeBuffer(copy), 0, copy.length);
          break;
        case UPDATE:
          sink.update(a, b, c);
          break;
        default:
          sink.flush(a);
      }
    }
  }
}
