package io.fluxccl.transport.ib;

import io.fluxccl.concurrent.Closing;
import io.fluxccl.transport.PostQueue;
import java.util.ArrayList;
import java.util.List;

/**
 * The requests that are with the device, oldest first, in a ring as long as its send queue: what
 * each was, for an error; what memory each holds; which flush is done with it. A completion stands
 * for all requests before it, because a queue pair completes in order. One thread at a time, but
 * for {@link #isEmpty()}, which others may ask too.
 */
final class InFlight {
  private final int mask;
  private final int[] kinds;
  private final long[] offsets;
  private final int[] lengths;
  private final long[] tickets;
  private final IbMemoryHandle[] targets;
  private final IbMemoryHandle[] sources;
  private long posted;
  private long completed;
  private long doneTicket;

  InFlight(int capacity) {
    mask = capacity - 1;
    kinds = new int[capacity];
    offsets = new long[capacity];
    lengths = new int[capacity];
    tickets = new long[capacity];
    targets = new IbMemoryHandle[capacity];
    sources = new IbMemoryHandle[capacity];
  }

  boolean isEmpty() {
    return posted == completed;
  }

  boolean isFull() {
    return posted - completed > mask;
  }

  boolean isHalfFull() {
    return posted - completed > mask / 2;
  }

  /** The id of the next request. */
  long nextId() {
    return posted;
  }

  /** Which place of the ring the next request has. */
  int nextSlot() {
    return (int) posted & mask;
  }

  /** The next request was posted. */
  void add(int kind, long targetOffset, int length) {
    int slot = nextSlot();
    kinds[slot] = kind;
    offsets[slot] = targetOffset;
    lengths[slot] = length;
    posted++;
  }

  /** The newest request is the last that uses these. */
  void holds(IbMemoryHandle target, IbMemoryHandle source) {
    int slot = (int) (posted - 1) & mask;
    targets[slot] = target;
    sources[slot] = source;
  }

  /** A flush is done with the newest request, or at once when there is none. */
  void flush(long ticket) {
    if (isEmpty()) {
      doneTicket = ticket;
    } else {
      tickets[(int) (posted - 1) & mask] = ticket;
    }
  }

  /** The highest ticket that is done. */
  long doneTicket() {
    return doneTicket;
  }

  /**
   * Takes a successful completion.
   *
   * @return how many requests it stands for
   */
  int complete(long id) {
    int done = 0;
    while (completed <= id) {
      release((int) completed & mask);
      completed++;
      done++;
    }
    return done;
  }

  private void release(int slot) {
    if (tickets[slot] != 0) {
      doneTicket = tickets[slot];
      tickets[slot] = 0;
    }
    letGo(targets, slot);
    letGo(sources, slot);
  }

  private static void letGo(IbMemoryHandle[] handles, int slot) {
    IbMemoryHandle handle = handles[slot];
    if (handle != null) {
      handles[slot] = null;
      handle.endUse();
    }
  }

  /** Lets go of everything, once the device has nothing any more; no flush is done by it. */
  void abandon() {
    List<AutoCloseable> uses = new ArrayList<>();
    for (; completed < posted; completed++) {
      int slot = (int) completed & mask;
      tickets[slot] = 0;
      uses.add(() -> letGo(targets, slot));
      uses.add(() -> letGo(sources, slot));
    }
    Closing.all(uses);
  }

  /** What a request was, for a message. */
  String describe(long id) {
    int slot = (int) id & mask;
    return (kinds[slot] == PostQueue.UPDATE ? "a signal" : "a write")
        + " of "
        + lengths[slot]
        + " bytes at offset "
        + offsets[slot];
  }
}
