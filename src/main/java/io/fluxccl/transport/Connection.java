package io.fluxccl.transport;

import io.fluxccl.FluxCclException;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicLong;

/**
 * A two-ended path to one peer over one transport, independent of any memory. One-sided: only the
 * writer calls. What one thread posts on a connection takes effect in the order posted.
 *
 * <p>Any thread may call; {@link #write}, {@link #updateAndSync} and {@link #beginFlush} by one
 * thread at a time where their order matters. None of them blocks for the peer; a full transport
 * applies back pressure inside, bounded by the connection's own failure.
 *
 * <p>A connection that fails stays failed: posting throws {@link #failure()}, flushes end with it.
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
   * Sets {@code counter} and posts its new value, 8 bytes little-endian, to the peer's memory:
   * visible there not before everything posted earlier on this connection.
   *
   * @param target memory of the peer
   * @param targetOffset bytes from its start, a multiple of 8
   * @param counter the local outbound value
   * @param newValue what it becomes
   * @return this connection
   * @throws io.fluxccl.InvalidUsage as {@link #write}
   * @throws FluxCclException if the connection has failed
   */
  Connection updateAndSync(
      RegisteredMemory target, long targetOffset, AtomicLong counter, long newValue);

  /**
   * Begins a flush of everything posted so far. For the proxy loop: never waits, and allocates
   * nothing where the transport can avoid it.
   *
   * @return a ticket; done when {@link #flushedTicket()} is this or greater
   * @throws FluxCclException if the connection has failed
   */
  long beginFlush();

  /**
   * Returns the highest ticket whose flush is done. Calling it makes progress where the transport
   * needs polling.
   */
  long flushedTicket();

  /**
   * Returns a future of everything posted so far being in the peer's memory. Blocks no thread.
   *
   * @param timeout how long that may take
   * @return completes then; with {@link io.fluxccl.Timeout} naming the peer when time is up, or
   *     with {@link #failure()}
   */
  CompletableFuture<Void> flush(Duration timeout);

  /** Returns why this connection failed, or null while it works. */
  FluxCclException failure();

  /**
   * Returns a future that completes, normally, with the failure of this connection; with an {@link
   * io.fluxccl.Aborted} when it is closed first.
   */
  CompletableFuture<FluxCclException> failed();

  /** Closes this end. Posts that were not flushed may be lost. Idempotent. */
  @Override
  void close();
}
