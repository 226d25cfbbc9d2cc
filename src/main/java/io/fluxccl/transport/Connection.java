// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport;

import io.fluxccl.FluxCclException;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicLong;

/**
 * A link to one peer over one transport, independent of any memory. It is one-sided: only the
 * writing rank makes calls. The posts of one thread on a connection take effect in the order
 * posted.
 *
 * <p>Any thread may call any method. If the order of {@link #write}, {@link #updateAndSync} and
 * {@link #beginFlush} matters, call them on one thread at a time. None of them waits for the peer.
 * If the transport's queue is full, they block until it has a free entry or the connection has
 * failed.
 *
 * <p>A connection that fails stays failed: posts throw {@link #failure()}, and flushes complete
 * with it.
 */
public interface Connection extends AutoCloseable {
  /** Returns the transport that it uses. */
  Transport transport();

  /** Returns the rank at the other end. */
  int remoteRank();

  /** Returns the tag that it was connected with. */
  int tag();

  /**
   * Posts a copy of local bytes to the peer's memory. The source must stay as it is until a later
   * flush is done.
   *
   * @param target memory of the peer
   * @param targetOffset bytes from its start
   * @param source memory of this rank
   * @param sourceOffset bytes from its start
   * @param size bytes, 0 or more
   * @return this connection
   * @throws io.fluxccl.InvalidUsage if a range lies outside its memory, or a memory was not
   *     registered for this transport or belongs to another rank
   * @throws FluxCclException if the connection has failed
   */
  Connection write(
      RegisteredMemory target,
      long targetOffset,
      RegisteredMemory source,
      long sourceOffset,
      long size);

  /**
   * Sets {@code counter} and posts its new value, 8 bytes little-endian, to the peer's memory. The
   * value becomes visible there only after everything posted earlier on this connection.
   *
   * @param target memory of the peer
   * @param targetOffset bytes from its start, a multiple of 8
   * @param counter the local outbound value
   * @param newValue the new value of the counter
   * @return this connection
   * @throws io.fluxccl.InvalidUsage as {@link #write}
   * @throws FluxCclException if the connection has failed
   */
  Connection updateAndSync(
      RegisteredMemory target, long targetOffset, AtomicLong counter, long newValue);

  /**
   * Begins a flush of everything posted so far. The proxy loop uses this method: it never waits,
   * and it allocates nothing where the transport can avoid it.
   *
   * @return a ticket; the flush is done when {@link #flushedTicket()} has reached it
   * @throws FluxCclException if the connection has failed
   */
  long beginFlush();

  /**
   * Returns the highest ticket whose flush is done. Calling it makes progress where the transport
   * needs polling.
   */
  long flushedTicket();

  /**
   * Flushes everything posted so far. Blocks no thread.
   *
   * @param timeout the longest time that the flush may take
   * @return a future that completes when all earlier posts are in the peer's memory; it fails with
   *     {@link io.fluxccl.Timeout} naming the peer when time is up, or with {@link #failure()}
   */
  CompletableFuture<Void> flush(Duration timeout);

  /**
   * Returns whether the two ends are connected, or about to be. A connection on demand is not
   * before the first post of either end.
   */
  default boolean isInUse() {
    return true;
  }

  /**
   * Returns why the link of this connection is down while another one is made, naming this
   * connection; null while the link works. Posts wait meanwhile.
   */
  default FluxCclException interruption() {
    return null;
  }

  /** Returns the failure of this connection, or null while it works. */
  FluxCclException failure();

  /**
   * Returns a future that completes normally, with the failure of this connection. The failure is
   * an {@link io.fluxccl.Aborted} if the connection is closed first.
   */
  CompletableFuture<FluxCclException> failed();

  /** Closes this end. Posts that were not flushed may be lost. Idempotent. */
  @Override
  void close();
}
