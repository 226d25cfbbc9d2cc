// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport;

import io.fluxccl.Experimental;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.util.concurrent.atomic.AtomicReference;

/**
 * For transports: the posts of a connection that the device has not received yet. Any thread may
 * post; threads that post at once spin for as long as storing one post takes. One thread at a time
 * takes posts. The queue grows by segments while the device is slower than the posters. It keeps
 * one segment for reuse, so posting in steady state allocates nothing.
 *
 * <p>Agrona's queues do not fit here: a full bounded queue would lose a post or block a proxy's
 * loop. They also don't number flushes in the order of the queue.
 *
 * @param <M> a transport's handle of a memory
 */
@Experimental
public final class PostQueue<M> {
  /** The type that stands for no post. */
  public static final int NONE = 0;

  /** The type of a post of {@link #write}. */
  public static final int WRITE = 1;

  /** The type of a post of {@link #update}. */
  public static final int UPDATE = 2;

  /** The type of a post of {@link #flush}. */
  public static final int FLUSH = 3;

  /** The number of waiting posts from which on {@link #isFull()} returns true. */
  public static final int LIMIT = 1 << 16;

  private static final int SEGMENT_LENGTH = 1024;

  /** The length of the first segment: most connections of a large job never post. */
  private static final int FIRST_LENGTH = 16;

  private static final int WORDS = 4;
  private static final int HANDLES = 2;

  private static final VarHandle POSTING;
  private static final VarHandle PUBLISHED;
  private static final VarHandle CONSUMED;

  static {
    try {
      MethodHandles.Lookup lookup = MethodHandles.lookup();
      POSTING = lookup.findVarHandle(PostQueue.class, "posting", int.class);
      PUBLISHED = lookup.findVarHandle(PostQueue.class, "published", long.class);
      CONSUMED = lookup.findVarHandle(PostQueue.class, "consumed", long.class);
    } catch (ReflectiveOperationException e) {
      throw new ExceptionInInitializerError(e);
    }
  }

  private static final class Segment {
    final int length;
    final long[] words;
    final Object[] handles;
    Segment next;

    Segment(int length) {
      this.length = length;
      this.words = new long[length * WORDS];
      this.handles = new Object[length * HANDLES];
    }
  }

  /** The one segment kept for reuse. */
  private final AtomicReference<Segment> spare = new AtomicReference<>();

  /** 1 while a thread posts. */
  @SuppressWarnings("unused")
  private volatile int posting;

  // Used by posting threads; guarded by posting.
  private Segment tail = new Segment(FIRST_LENGTH);
  private int tailIndex;
  private long tickets;
  private boolean closed;

  /** The number of posts. Its release store pairs with the acquire in {@link #type()}. */
  private volatile long published;

  /** The number of posts taken; posting threads only use it to compute the queue's length. */
  private volatile long consumed;

  // Used by the thread that takes posts.
  private Segment head = tail;
  private int headIndex;
  private long taken;
  private long seen;

  /** Creates an empty queue. */
  public PostQueue() {}

  /**
   * Posts a write.
   *
   * @param target the memory to write to
   * @param targetOffset bytes from its start
   * @param source the memory to read from
   * @param sourceOffset bytes from its start
   * @param length bytes
   * @return false, with no effect, if the queue is closed
   */
  public boolean write(M target, long targetOffset, M source, long sourceOffset, long length) {
    return post(WRITE, target, targetOffset, source, sourceOffset, length);
  }

  /**
   * Posts a signal.
   *
   * @param target the memory to write to
   * @param targetOffset bytes from its start
   * @param value the value to store
   * @return false, with no effect, if the queue is closed
   */
  public boolean update(M target, long targetOffset, long value) {
    return post(UPDATE, target, targetOffset, null, value, Long.BYTES);
  }

  /**
   * Posts a flush and returns its ticket, which is greater than all before. Returns 0 if the queue
   * is closed.
   */
  public long flush() {
    lock();
    try {
      if (closed) {
        return 0;
      }
      long ticket = ++tickets;
      store(FLUSH, null, ticket, null, 0, 0);
      return ticket;
    } finally {
      unlock();
    }
  }

  private boolean post(int type, M target, long a, M source, long b, long length) {
    lock();
    try {
      if (!closed) {
        store(type, target, a, source, b, length);
      }
      return !closed;
    } finally {
      unlock();
    }
  }

  private void store(int type, M target, long a, M source, long b, long length) {
    if (tailIndex == tail.length) {
      Segment fresh = spare.getAndSet(null);
      fresh = fresh == null ? new Segment(SEGMENT_LENGTH) : fresh;
      tail.next = fresh;
      tail = fresh;
      tailIndex = 0;
    }
    int word = tailIndex * WORDS;
    tail.words[word] = type;
    tail.words[word + 1] = a;
    tail.words[word + 2] = b;
    tail.words[word + 3] = length;
    tail.handles[tailIndex * HANDLES] = target;
    tail.handles[tailIndex * HANDLES + 1] = source;
    tailIndex++;
    PUBLISHED.setRelease(this, published + 1);
  }

  private void lock() {
    while (!POSTING.compareAndSet(this, 0, 1)) {
      Thread.onSpinWait();
    }
  }

  private void unlock() {
    POSTING.setRelease(this, 0);
  }

  /** Returns whether posting threads should wait. */
  public boolean isFull() {
    return published - consumed >= LIMIT;
  }

  /** Returns whether the queue is empty. Any thread. */
  public boolean isEmpty() {
    return published == consumed;
  }

  /** Closes the queue for new posts. Posts already in the queue can still be taken. */
  public void close() {
    lock();
    closed = true;
    unlock();
  }

  /**
   * Returns the type of the oldest post, or {@link #NONE}. Only the thread that takes posts calls
   * this method and those below.
   */
  public int type() {
    if (taken == seen) {
      seen = (long) PUBLISHED.getAcquire(this);
      if (taken == seen) {
        return NONE;
      }
    }
    if (headIndex == head.length) {
      Segment empty = head;
      head = empty.next;
      headIndex = 0;
      empty.next = null;
      if (empty.length == SEGMENT_LENGTH) {
        spare.set(empty);
      }
    }
    return (int) head.words[headIndex * WORDS];
  }

  /** Returns the target offset of the oldest post, or the ticket of a flush. */
  public long targetOffset() {
    return head.words[headIndex * WORDS + 1];
  }

  /** Returns the source offset of the oldest post, or the value of a signal. */
  public long sourceOffset() {
    return head.words[headIndex * WORDS + 2];
  }

  /** Returns the length of the oldest post in bytes. */
  public long length() {
    return head.words[headIndex * WORDS + 3];
  }

  /** Returns the target of the oldest post. */
  public M target() {
    return memory(headIndex * HANDLES);
  }

  /** Returns the source of the oldest post, or null. */
  public M source() {
    return memory(headIndex * HANDLES + 1);
  }

  @SuppressWarnings("unchecked") // only M are stored
  private M memory(int index) {
    return (M) head.handles[index];
  }

  /** Removes the oldest post. */
  public void pop() {
    head.handles[headIndex * HANDLES] = null;
    head.handles[headIndex * HANDLES + 1] = null;
    headIndex++;
    taken++;
    CONSUMED.setRelease(this, taken);
  }
}
