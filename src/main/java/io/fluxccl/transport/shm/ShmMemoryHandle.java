package io.fluxccl.transport.shm;

import io.fluxccl.transport.MemoryHandle;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * Memory of this process or of another one, mapped here. Counts the copies that are going on, so
 * that closing never unmaps memory under one of them: the last to leave lets go of it.
 */
final class ShmMemoryHandle implements MemoryHandle {
  private static final int CLOSED = Integer.MIN_VALUE;

  private final ShmContext context;
  private final byte[] wire;
  private final long address;
  private final long size;
  private final Runnable release;

  /** How many copies use it; negative once it is closed. */
  private final AtomicInteger uses = new AtomicInteger();

  ShmMemoryHandle(ShmContext context, byte[] wire, long address, long size, Runnable release) {
    this.context = context;
    this.wire = wire;
    this.address = address;
    this.size = size;
    this.release = release;
  }

  @Override
  public byte[] wire() {
    return wire.clone();
  }

  @Override
  public long address() {
    return address;
  }

  long size() {
    return size;
  }

  boolean belongsTo(ShmContext other) {
    return context == other;
  }

  /** Keeps the memory mapped until {@link #endUse()}, unless it is closed: then false. */
  boolean beginUse() {
    int before;
    do {
      before = uses.get();
      if (before < 0) {
        return false;
      }
    } while (!uses.compareAndSet(before, before + 1));
    return true;
  }

  void endUse() {
    if (uses.decrementAndGet() == CLOSED) {
      context.letGo(this, release);
    }
  }

  @Override
  public void close() {
    int before;
    do {
      before = uses.get();
      if (before < 0) {
        return;
      }
    } while (!uses.compareAndSet(before, before + CLOSED));
    if (before == 0) {
      context.letGo(this, release);
    }
  }
}
