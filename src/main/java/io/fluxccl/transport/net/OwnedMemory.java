package io.fluxccl.transport.net;

import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.netplugin.PointerType;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * Memory of this rank. Whoever reads or writes it for a connection brackets that with {@link
 * #beginUse} and {@link #endUse}; once closed it lets no new use begin, and the last that ends lets
 * the memory go.
 */
final class OwnedMemory extends NetMemoryHandle {
  private static final int CLOSED = Integer.MIN_VALUE;

  private final NetContext context;
  private final DeviceBuffer buffer;
  private final long address;
  private final RemoteMemory seenByItself;
  private final AtomicInteger uses = new AtomicInteger();

  OwnedMemory(NetContext context, long id, DeviceBuffer buffer, Place place) {
    super(id, buffer.size(), place);
    this.context = context;
    this.buffer = buffer;
    this.address = buffer.address();
    this.seenByItself = new RemoteMemory(id, size(), place);
    buffer.retain();
  }

  PointerType pointerType() {
    return isOnHost() ? PointerType.HOST : PointerType.CUDA;
  }

  DeviceBuffer buffer() {
    return buffer;
  }

  boolean belongsTo(NetContext other) {
    return context == other;
  }

  /** This memory as a rank sees it that writes to itself. */
  RemoteMemory seenByItself() {
    return seenByItself;
  }

  boolean contains(long offset, long length) {
    return offset >= 0 && length >= 0 && offset <= size() - length;
  }

  @Override
  public long address() {
    return address;
  }

  @Override
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

  /** One use more, by who has one, closed or not. */
  void addUse() {
    uses.incrementAndGet();
  }

  @Override
  void endUse() {
    if (uses.decrementAndGet() == CLOSED) {
      context.letGo(this);
    }
  }

  /** The registration is not used any more, and has gone from all connections. */
  void release() {
    if (isStaged()) {
      try {
        context.staging().afterCopies(buffer::release);
      } catch (RuntimeException e) {
        // A device that can't say when copies are done is not at work on any.
        buffer.release();
        throw e;
      }
    } else {
      buffer.release();
    }
  }

  /**
   * Ends the registration. A peer that is writing to it at this moment loses its connection, so
   * that nothing is written after this.
   */
  @Override
  public void close() {
    int before;
    do {
      before = uses.get();
      if (before < 0) {
        return;
      }
    } while (!uses.compareAndSet(before, before + CLOSED));
    seenByItself.close();
    try {
      context.closed(this);
    } finally {
      if (before == 0) {
        context.letGo(this);
      }
    }
  }
}
