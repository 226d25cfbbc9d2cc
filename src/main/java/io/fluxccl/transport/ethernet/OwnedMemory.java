package io.fluxccl.transport.ethernet;

import io.fluxccl.Deadline;
import io.fluxccl.InvalidUsage;
import io.fluxccl.TransportFailure;
import io.fluxccl.device.DeviceBuffer;
import java.time.Duration;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * Memory of this rank that peers may write. The event loop brackets every placement, and every copy
 * that it has the device make, with {@link #beginUse} and {@link #endUse}; {@link #close} lets no
 * new one begin and outlasts the one that runs, so that nothing is written after it. Where copies
 * are still with the device then, the memory stays until they are done.
 */
final class OwnedMemory extends EthernetMemory {
  private static final int CLOSED = Integer.MIN_VALUE;
  private static final Duration CLOSE_TIMEOUT = Duration.ofSeconds(10);

  /** Uses under way, and the sign bit once closed. */
  private final AtomicInteger state = new AtomicInteger();

  private final MemoryTable table;
  private final DeviceBuffer buffer;
  private final long address;
  private final Staging staging;

  /** Set when closing has given up on a use that does not end, which lets the memory go then. */
  private volatile boolean outlasted;

  private final AtomicBoolean gone = new AtomicBoolean();

  /**
   * Where in the context's {@link StagedInput} the last copy to this memory ends. Stored by the
   * event loop within a use, and loaded by who closes when there is none.
   */
  private volatile long placedUpTo;

  /**
   * @param staging copies to and from this memory, or null where sockets reach it themselves
   */
  OwnedMemory(MemoryTable table, long id, DeviceBuffer buffer, Staging staging) {
    super(id, buffer.size());
    this.table = table;
    this.buffer = buffer;
    this.address = buffer.address();
    this.staging = staging;
    buffer.retain();
  }

  /** False once closed; otherwise the memory stays until the matching {@link #endUse}. */
  boolean beginUse() {
    for (; ; ) {
      int current = state.get();
      if (current < 0) {
        return false;
      }
      if (state.compareAndSet(current, current + 1)) {
        return true;
      }
    }
  }

  void endUse() {
    if (state.decrementAndGet() == CLOSED && outlasted) {
      letGo();
    }
  }

  boolean contains(long offset, long length) {
    return offset >= 0 && length >= 0 && offset <= size() - length;
  }

  /** Whether sockets can't reach it. */
  boolean isStaged() {
    return staging != null;
  }

  /**
   * Refuses memory of another context.
   *
   * @throws InvalidUsage if it was not registered in that table
   */
  void requireIn(MemoryTable own) {
    if (table != own) {
      throw InvalidUsage.of(
          "source memory of %s bytes is registered with another communicator; register"
              + " it with the"
              + " connection's own",
          size());
    }
  }

  void placedUpTo(long position) {
    placedUpTo = position;
  }

  @Override
  boolean isClosed() {
    return state.get() < 0;
  }

  @Override
  public long address() {
    return address;
  }

  DeviceBuffer buffer() {
    return buffer;
  }

  /**
   * Ends the registration. Waits for at most the one non-blocking read that may be under way, and a
   * moment for the copies behind it.
   */
  @Override
  public void close() {
    close(true);
  }

  /** Ends the registration with its context. */
  void closeWithContext() {
    close(false);
  }

  private void close(boolean awaitCopies) {
    if (state.getAndUpdate(current -> current | CLOSED) < 0) {
      return;
    }
    table.remove(this);
    Deadline deadline = Deadline.after(CLOSE_TIMEOUT);
    while (state.get() != CLOSED) {
      if (deadline.expired()) {
        outlasted = true;
        if (state.get() == CLOSED) {
          // It ended in between, and may not have seen the flag.
          letGo();
        }
        throw new TransportFailure(
            TransportFailure.NO_RANK,
            String.format(
                "closing an ETHERNET registration of %s bytes: a read into it has not ended"
                    + " within %s s",
                size(), CLOSE_TIMEOUT.toSeconds()));
      }
      Thread.yield();
    }
    try {
      if (staging != null && awaitCopies) {
        staging.input().await(placedUpTo);
      }
    } finally {
      letGo();
    }
  }

  private void letGo() {
    if (!gone.compareAndSet(false, true)) {
      return;
    }
    if (staging == null) {
      buffer.release();
    } else {
      staging.afterCopies(buffer::release);
    }
  }
}
