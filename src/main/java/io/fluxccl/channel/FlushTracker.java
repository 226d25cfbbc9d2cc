package io.fluxccl.channel;

import io.fluxccl.FluxCclException;
import io.fluxccl.semaphore.Host2DeviceSemaphore;
import io.fluxccl.transport.Connection;
import org.agrona.concurrent.AtomicBuffer;

/**
 * One semaphore's traffic as the proxy sees it, with the flushes that have not drained yet. A flush
 * never holds up the loop: its ring position is remembered with the connection's ticket, and
 * released when the transport has drained.
 *
 * <p>Two flushes are remembered, the one waited for and the latest behind it, so memory is bounded
 * and none starves: those in between are done when the latest is. Touched by the proxy thread only,
 * but for {@link #failure()}.
 */
final class FlushTracker {
  private static final long NONE = -1;

  final Host2DeviceSemaphore semaphore;
  final Connection connection;
  private final AtomicBuffer flushWords;
  private final int flushWordIndex;
  private long currentTicket = NONE;
  private long currentPosition;
  private long nextTicket = NONE;
  private long nextPosition;
  private volatile FluxCclException failure;

  FlushTracker(
      Host2DeviceSemaphore semaphore,
      Connection connection,
      AtomicBuffer flushWords,
      int flushWordIndex) {
    this.semaphore = semaphore;
    this.connection = connection;
    this.flushWords = flushWords;
    this.flushWordIndex = flushWordIndex;
  }

  FluxCclException failure() {
    return failure;
  }

  /**
   * Remembers the flush that was pushed at a ring position; releases it at once if there is nothing
   * to wait for.
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

  /** Releases what has drained; returns how many steps that were. */
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
      // Pairs with the acquire of the flush word in ProxyChannelDeviceHandle.
      flushWords.putLongRelease(flushWordIndex, currentPosition + 1);
      currentTicket = nextTicket;
      currentPosition = nextPosition;
      nextTicket = NONE;
      steps++;
    }
    return steps;
  }

  /**
   * Ends this channel: waiting flushes give up, later triggers are dropped. True for the first
   * failure only.
   */
  boolean fail(FluxCclException reason) {
    if (failure != null) {
      return false;
    }
    failure = reason;
    currentTicket = NONE;
    nextTicket = NONE;
    // Pairs with the acquire of the flush word in ProxyChannelDeviceHandle.
    flushWords.putLongRelease(flushWordIndex, ProxyChannelDescriptor.FAILED);
    return true;
  }
}
