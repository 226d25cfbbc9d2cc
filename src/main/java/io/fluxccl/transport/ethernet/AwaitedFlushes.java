package io.fluxccl.transport.ethernet;

/**
 * Flushes that a peer asked for and that wait for copies, oldest first: each a ticket and the
 * position to which the copies must have come. Threads of the peer may post their tickets in
 * another order than they took them, and an answer stands for all lower tickets: so each place
 * holds the highest ticket so far. When there are too many, the newest stands for those that come.
 * Confined to the event loop.
 */
final class AwaitedFlushes {
  private static final int CAPACITY = 32;

  private final long[] tickets = new long[CAPACITY];
  private final long[] positions = new long[CAPACITY];
  private int first;
  private int count;
  private long highest;

  boolean isEmpty() {
    return count == 0;
  }

  void add(long ticket, long position) {
    if (count < CAPACITY) {
      count++;
    }
    int last = (first + count - 1) % CAPACITY;
    highest = Math.max(highest, ticket);
    tickets[last] = highest;
    positions[last] = position;
  }

  /** The position of the oldest. */
  long position() {
    return positions[first];
  }

  /** Takes the oldest; returns the ticket up to which all are answered with it. */
  long take() {
    long ticket = tickets[first];
    first = (first + 1) % CAPACITY;
    count--;
    return ticket;
  }
}
