package io.fluxccl.transport.ethernet;

import io.fluxccl.Deadline;
import io.fluxccl.TransportFailure;
import io.fluxccl.device.DeviceBuffer;
import java.time.Duration;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * Memory of this rank that peers may write. The event loop brackets every placement with {@link
 * #beginPlacement} and {@link #endPlacement}; {@link #close} lets no new one begin and outlasts the
 * one that runs, so that nothing is written after it.
 */
final class OwnedMemory extends EthernetMemory {
  private static final int CLOSED = Integer.MIN_VALUE;
  private static final Duration CLOSE_TIMEOUT = Duration.ofSeconds(10);

  /** Placements under way, and the sign bit once closed. */
  private final AtomicInteger state = new AtomicInteger();

  private final MemoryTable table;
  private final DeviceBuffer buffer;
  private final long address;

  OwnedMemory(MemoryTable table, long id, DeviceBuffer buffer) {
    super(id, buffer.size());
    this.table = table;
    this.buffer = buffer;
    this.address = HostView.address(buffer);
    buffer.retain();
  }

  /** False once closed; otherwise the memory stays until the matching {@link #endPlacement}. */
  boolean beginPlacement() {
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

  void endPlacement() {
    state.decrementAndGet();
  }

  boolean contains(long offset, long length) {
    return offset >= 0 && length >= 0 && offset <= size() - length;
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

  /** Ends the registration. Waits for at most the one non-blocking read that may be under way. */
  @Override
  public void close() {
    if (state.getAndUpdate(current -> current | CLOSED) < 0) {
      return;
    }
    table.remove(this);
    Deadline deadline = Deadline.after(CLOSE_TIMEOUT);
    while (state.get() != CLOSED) {
      if (deadline.expired()) {
        throw new TransportFailure(
            TransportFailure.NO_RANK,
            "closing an ETHERNET registration of "
                + size()
                + " bytes: a read into it has not ended within "
                + CLOSE_TIMEOUT.toSeconds()
                + " s");
      }
      Thread.yield();
    }
    buffer.release();
  }
}
