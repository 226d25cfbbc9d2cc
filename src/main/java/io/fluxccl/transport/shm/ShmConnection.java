package io.fluxccl.transport.shm;

import io.fluxccl.Aborted;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.device.host.HostMemory;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.MemoryHandle;
import io.fluxccl.transport.RegisteredMemory;
import io.fluxccl.transport.Transport;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicLong;

/**
 * A connection whose writes are copies by the caller, done when they return. Nothing is ever in
 * flight, so every flush is done at once.
 */
final class ShmConnection implements Connection {
  private static final long FLUSHED = 0;

  private final ShmContext context;
  private final int remoteRank;
  private final int tag;
  private final CompletableFuture<FluxCclException> failed = new CompletableFuture<>();
  private volatile FluxCclException failure;

  ShmConnection(ShmContext context, int remoteRank, int tag) {
    this.context = context;
    this.remoteRank = remoteRank;
    this.tag = tag;
  }

  @Override
  public Transport transport() {
    return Transport.SHM;
  }

  @Override
  public int remoteRank() {
    return remoteRank;
  }

  @Override
  public int tag() {
    return tag;
  }

  @Override
  public Connection write(
      RegisteredMemory target,
      long targetOffset,
      RegisteredMemory source,
      long sourceOffset,
      long size) {
    throwFailure();
    ShmMemoryHandle to = handleOf("target", target, remoteRank);
    ShmMemoryHandle from = handleOf("source", source, context.environment().rank());
    target.checkRange("target", targetOffset, size);
    source.checkRange("source", sourceOffset, size);
    beginUse("target", to, target);
    try {
      beginUse("source", from, source);
      try {
        HostMemory.copy(to.address() + targetOffset, from.address() + sourceOffset, size);
      } finally {
        from.endUse();
      }
    } finally {
      to.endUse();
    }
    return this;
  }

  @Override
  public Connection updateAndSync(
      RegisteredMemory target, long targetOffset, AtomicLong counter, long newValue) {
    throwFailure();
    ShmMemoryHandle to = handleOf("target", target, remoteRank);
    target.checkRange("target", targetOffset, Long.BYTES);
    long address = to.address() + targetOffset;
    if ((address & Long.BYTES - 1) != 0) {
      throw new InvalidUsage(
          "targetOffset=" + targetOffset + " is not at a multiple of 8 of rank " + remoteRank);
    }
    beginUse("target", to, target);
    try {
      counter.set(newValue);
      // Pairs with the acquire of whoever waits for this word: it sees the writes before.
      HostMemory.putLongRelease(address, newValue);
    } finally {
      to.endUse();
    }
    return this;
  }

  private ShmMemoryHandle handleOf(String what, RegisteredMemory memory, int rank) {
    if (memory.rank() != rank) {
      throw new InvalidUsage(
          what + " is memory of rank " + memory.rank() + "; here it must be rank " + rank + "'s");
    }
    MemoryHandle handle = memory.handle(Transport.SHM);
    if (!(handle instanceof ShmMemoryHandle)
        || !((ShmMemoryHandle) handle).belongsTo(context)
        || ((ShmMemoryHandle) handle).size() < memory.size()) {
      throw new InvalidUsage(
          what + " " + memory + " was not registered with, or received by, this communicator");
    }
    return (ShmMemoryHandle) handle;
  }

  private static void beginUse(String what, ShmMemoryHandle handle, RegisteredMemory memory) {
    if (!handle.beginUse()) {
      throw new InvalidUsage(what + " " + memory + " is closed");
    }
  }

  @Override
  public long beginFlush() {
    throwFailure();
    return FLUSHED;
  }

  @Override
  public long flushedTicket() {
    return FLUSHED;
  }

  @Override
  public CompletableFuture<Void> flush(Duration timeout) {
    FluxCclException reason = failure;
    return reason == null
        ? CompletableFuture.completedFuture(null)
        : CompletableFuture.failedFuture(reason);
  }

  @Override
  public FluxCclException failure() {
    return failure;
  }

  private void throwFailure() {
    FluxCclException reason = failure;
    if (reason != null) {
      throw reason;
    }
  }

  @Override
  public CompletableFuture<FluxCclException> failed() {
    return failed.copy();
  }

  @Override
  public void close() {
    context.remove(this);
    Aborted reason =
        new Aborted(
            FluxCclException.NO_RANK,
            "the SHM connection to rank " + remoteRank + " tag=" + tag + " was closed");
    synchronized (this) {
      if (failure != null) {
        return;
      }
      failure = reason;
    }
    failed.complete(reason);
  }

  @Override
  public String toString() {
    return "ShmConnection(remoteRank=" + remoteRank + ", tag=" + tag + ")";
  }
}
