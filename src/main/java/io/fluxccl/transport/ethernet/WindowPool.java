package io.fluxccl.transport.ethernet;

import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import org.agrona.BufferUtil;

/**
 * The windows through which a context sends: bare ones over the users' memory, and batches, which
 * have memory of their own for small frames. Confined to the event loop.
 */
final class WindowPool {
  /** The length of a batch. */
  static final int BATCH_LENGTH = 32 * 1024;

  private final ArrayDeque<Bare> bare = new ArrayDeque<>();
  private final ArrayDeque<Batch> batches = new ArrayDeque<>();
  private int lent;

  /** A window over that memory, all of it readable; comes back by its release. */
  MemoryWindow window(long address, int length) {
    return window(address, length, null);
  }

  /**
   * As {@link #window(long, int)}.
   *
   * @param user told of the release, or null
   */
  MemoryWindow window(long address, int length, MemoryWindow.Owner user) {
    Bare idle = bare.poll();
    if (idle == null) {
      idle = new Bare(this);
    }
    lent++;
    idle.user = user;
    MemoryWindow window = idle.window;
    window.point(address, length);
    window.writerIndex(length);
    return window;
  }

  /** An empty batch; comes back by its release. */
  MemoryWindow batch() {
    Batch batch = batches.poll();
    if (batch == null) {
      batch = new Batch(this);
    }
    lent++;
    return batch.window.point(batch.address, BATCH_LENGTH);
  }

  /** How many are not back yet. */
  int lent() {
    return lent;
  }

  private static final class Bare {
    private final MemoryWindow window;
    private MemoryWindow.Owner user;

    Bare(WindowPool pool) {
      window = new MemoryWindow(released -> back(pool));
    }

    private void back(WindowPool pool) {
      pool.lent--;
      MemoryWindow.Owner told = user;
      user = null;
      if (told != null) {
        told.released(window);
      }
      pool.bare.push(this);
    }
  }

  private static final class Batch {
    /** Keeps the memory. */
    private final ByteBuffer memory = BufferUtil.allocateDirectAligned(BATCH_LENGTH, 64);

    private final long address = BufferUtil.address(memory);
    private final MemoryWindow window;

    Batch(WindowPool pool) {
      window =
          new MemoryWindow(
              released -> {
                pool.lent--;
                pool.batches.push(this);
              });
    }
  }
}
