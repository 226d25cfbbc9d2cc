package io.fluxccl.transport.ib;

import io.fluxccl.concurrent.Closing;
import io.fluxccl.transport.MemoryHandle;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * Memory as the device knows it: this rank's, registered in pieces, or a peer's, by its keys.
 * Counts the writes that are posted and not complete, so that closing never ends a registration
 * under one of them: the last to leave does.
 */
final class IbMemoryHandle implements MemoryHandle {
  /** Bytes of a piece, a power of two: a registration is shorter than 2 GiB. */
  static final long PIECE = 1L << 30;

  private static final int CLOSED = Integer.MIN_VALUE;

  private final IbContext context;
  private final IbMemoryCodec.Place place;
  private final long size;
  private final boolean onHost;
  private final VerbsMemory[] own;
  private final int[] localKeys;
  private final Runnable release;

  /** How many writes use it; negative once it is closed. */
  private final AtomicInteger uses = new AtomicInteger();

  /**
   * @param own the registrations, in order; empty for a peer's memory
   * @param onHost whether this process can read it by its address
   * @param release run once, when nobody uses it any more
   */
  IbMemoryHandle(
      IbContext context,
      IbMemoryCodec.Place place,
      long size,
      VerbsMemory[] own,
      boolean onHost,
      Runnable release) {
    this.context = context;
    this.place = place;
    this.size = size;
    this.own = own;
    this.onHost = onHost;
    this.release = release;
    this.localKeys = new int[own.length];
    for (int i = 0; i < own.length; i++) {
      localKeys[i] = own[i].localKey();
    }
  }

  @Override
  public byte[] wire() {
    return IbMemoryCodec.encode(place);
  }

  /** A peer's memory is reached by writes only. */
  @Override
  public long address() {
    return isOwn() ? addressAt(0) : 0;
  }

  boolean isOwn() {
    return own.length > 0;
  }

  boolean isOnHost() {
    return onHost;
  }

  long size() {
    return size;
  }

  boolean belongsTo(IbContext other) {
    return context == other;
  }

  /** The address of a byte, in the owner's process. */
  long addressAt(long offset) {
    return place.address() + offset;
  }

  int localKeyAt(long offset) {
    return localKeys[(int) (offset / place.piece())];
  }

  int remoteKeyAt(long offset) {
    return place.keys()[(int) (offset / place.piece())];
  }

  /** How many bytes from there on have the same key. */
  long untilNextKey(long offset) {
    return place.piece() - offset % place.piece();
  }

  /** Keeps the registration until {@link #endUse()}, unless it is closed: then false. */
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
      letGo();
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
      letGo();
    }
  }

  private void letGo() {
    context.forget(this);
    try {
      Closing.all(own);
    } finally {
      release.run();
    }
  }
}
