// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.shm;

import io.fluxccl.FluxCclException;
import io.fluxccl.device.host.HostMemory;
import io.fluxccl.transport.mapped.MappedConnection;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicLong;

/**
 * A connection on which the calling thread copies each write before it returns. No transfer is ever
 * in flight, so every flush is done at once.
 */
final class ShmConnection extends MappedConnection {
  private static final long FLUSHED = 0;

  ShmConnection(ShmContext context, int remoteRank, int tag) {
    super(context, remoteRank, tag);
  }

  @Override
  protected void copy(long target, long source, long size) {
    HostMemory.copy(target, source, size);
  }

  @Override
  protected void signal(long target, AtomicLong counter, long value) {
    counter.set(value);
    // Release: pairs with the acquire of a thread that waits for this word; it sees all earlier
    // writes.
    HostMemory.putLongRelease(target, value);
  }

  @Override
  public long beginFlush() {
    checkWorking();
    return FLUSHED;
  }

  @Override
  public long flushedTicket() {
    return FLUSHED;
  }

  @Override
  public CompletableFuture<Void> flush(Duration timeout) {
    FluxCclException reason = failure();
    return reason == null
        ? CompletableFuture.completedFuture(null)
        : CompletableFuture.failedFuture(reason);
  }
}
