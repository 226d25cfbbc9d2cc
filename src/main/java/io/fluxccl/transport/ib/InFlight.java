// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.ib;

import io.fluxccl.Text;
import io.fluxccl.concurrent.Closing;
import io.fluxccl.transport.PostQueue;
import java.util.ArrayList;
import java.util.List;

/**
 * The requests in flight at the device, oldest first, in a ring as long as the send queue. Each
 * entry holds a description for errors, the memories that the request uses, and the flush that is
 * done with it. A completion covers all earlier requests, because a queue pair completes in order.
 * One thread at a time, except for {@link #isEmpty()}.
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

  /** Returns the id of the next request. */
  long nextId() {
    return posted;
  }

  /** Returns the ring slot of the next request. */
  int nextSlot() {
    return (int) posted & mask;
  }

  /** Adds the next request. */
  void add(int kind, long targetOffset, int length) {
    int slot = nextSlot();
    kinds[slot] = kind;
    offsets[slot] = targetOffset;
    lengths[slot] = length;
    posted++;
  }

  /** Keeps memories open until the newest request completes. */
  void holds(IbMemoryHandle target, IbMemoryHandle source) {
    int slot = (int) (posted - 1) & mask;
    targets[slot] = target;
    sources[slot] = source;
  }

  /** Adds a flush. It is done with the newest request, or at once if no request is in flight. */
  void flush(long ticket) {
    if (isEmpty()) {
      doneTicket = ticket;
    } else {
      tickets[(int) (posted - 1) & mask] = ticket;
    }
  }

  /** Returns the highest ticket whose flush is done. */
  long doneTicket() {
    return doneTicket;
  }

  /** Completes a request and all before it. */
  void complete(long id) {
    while (completed <= id) {
      int slot = (int) completed & mask;
      if (tickets[slot] != 0) {
        doneTicket = tickets[slot];
        tickets[slot] = 0;
      }
      release(targets, slot);
      release(sources, slot);
      completed++;
    }
  }

  private static void release(IbMemoryHandle[] handles, int slot) {
    IbMemoryHandle handle = handles[slot];
    if (handle != null) {
      handles[slot] = null;
      handle.release();
    }
  }

  /** Drops all requests, once the device has none any more. It completes no flush. */
  void abandon() {
    List<AutoCloseable> uses = new ArrayList<>();
    for (; completed < posted; completed++) {
      int slot = (int) completed & mask;
      tickets[slot] = 0;
      uses.add(() -> release(targets, slot));
      uses.add(() -> release(sources, slot));
    }
    Closing.all(uses);
  }

  /** Returns a description of a request, for an error message. */
  String describe(long id) {
    int slot = (int) id & mask;
    String kind = kinds[slot] == PostQueue.UPDATE ? "signal" : "write";
    return Text.of("a %s of %s bytes at offset %s", kind, lengths[slot], offsets[slot]);
  }
}
