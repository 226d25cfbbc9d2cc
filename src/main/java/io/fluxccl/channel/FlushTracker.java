// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.channel;

import io.fluxccl.Aborted;
import io.fluxccl.FluxCclException;
import io.fluxccl.semaphore.Host2DeviceSemaphore;
import io.fluxccl.transport.Connection;
import java.util.concurrent.atomic.AtomicReference;
import org.agrona.concurrent.AtomicBuffer;

/**
 * Tracks the pending flushes of one semaphore, and its failure, for the proxy. A flush never blocks
 * the loop: the tracker keeps its ring position with the connection's ticket, and releases it when
 * the transport has drained.
 *
 * <p>It keeps two flushes, the current one and the latest after it: those in between are done when
 * the latest is. So memory is bounded and no flush starves. Only the proxy thread uses it, except
 * for {@link #failure()} and {@link #retire()}.
 */
final class FlushTracker {
  private static final long NONE = -1;
  private static final FluxCclException RETIRED =
      new Aborted(FluxCclException.NO_RANK, "the semaphore of this channel is closed");

  final Host2DeviceSemaphore semaphore;
  final Connection connection;
  private final AtomicBuffer flushWords;
  private final int flushWordIndex;

  /** NONE if nothing is in flight; volatile for {@link #retire()}. */
  private volatile long currentTicket = NONE;

  private long currentPosition;
  private long nextTicket = NONE;
  private long nextPosition;
  private final AtomicReference<FluxCclException> failure = new AtomicReference<>();

  FlushTracker(
      Host2DeviceSemaphore semaphore,
      Connection connection,
      AtomicBuffer flushWords,
      int flushWordIndex) {
    this.semaphore = semaphore;
    this.connection = connection;
    this.flushWords = flushWords;
    this.flushWordIndex = flushWordIndex;
    flushWords.putLongRelease(flushWordIndex, 0);
  }

  FluxCclException failure() {
    return failure.get();
  }

  /**
   * Adds the flush that was pushed at a ring position, and releases it at once if nothing is in
   * flight.
   */
  void flush(long position) {
    long ticket = connection.beginFlush();
    if (currentTicket == NONE) {
      currentTicket = ticket;
      currentPosition = position;
    } else {
      nextTicket = ticket;
      nextPosition = position;
    }
    poll();
  }

  boolean isFlushing() {
    return currentTicket != NONE;
  }

  /** Releases the flushes that have drained, and returns their number. */
  int poll() {
    int steps = 0;
    while (currentTicket != NONE) {
      if (connection.flushedTicket() < currentTicket) {
        FluxCclException reason = connection.failure();
        if (reason != null) {
          throw reason;
        }
        return steps;
      }
      // Release: pairs with the acquire of the flush word in ProxyChannelDeviceHandle.
      flushWords.putLongRelease(flushWordIndex, currentPosition + 1);
      currentTicket = nextTicket;
      currentPosition = nextPosition;
      nextTicket = NONE;
      steps++;
    }
    return steps;
  }

  /**
   * Fails this channel: waiting flushes end, and later triggers are dropped. Returns true for the
   * first failure only.
   */
  boolean fail(FluxCclException reason) {
    if (!failure.compareAndSet(null, reason)) {
      return false;
    }
    currentTicket = NONE;
    nextTicket = NONE;
    // Release: pairs with the acquire of the flush word in ProxyChannelDeviceHandle.
    flushWords.putLongRelease(flushWordIndex, ProxyChannelDescriptor.FAILED);
    return true;
  }

  /**
   * Ends this tracker so that another takes its flush word, if the proxy thread does not write that
   * any more. No trigger of this channel is pushed meanwhile. Called on any thread.
   */
  boolean retire() {
    if (currentTicket != NONE) {
      return false;
    }
    // A failure is set just before its word is written; nothing follows.
    return failure.compareAndSet(null, RETIRED)
        || flushWords.getLongVolatile(flushWordIndex) == ProxyChannelDescriptor.FAILED;
  }
}
