// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.cudaipc;

import io.fluxccl.Deadline;
import io.fluxccl.DeviceFailure;
import io.fluxccl.FluxCclException;
import io.fluxccl.concurrent.BlockingTasks;
import io.fluxccl.concurrent.Closing;
import io.fluxccl.concurrent.UseCount;
import io.fluxccl.device.PinnedBuffer;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.device.cuda.CudaStream;
import io.fluxccl.transport.mapped.MappedConnection;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;

/**
 * A connection that copies writes asynchronously on a stream of its own. That stream also stores
 * signals and flush tickets, as words, after these copies.
 *
 * <p>A word that has arrived proves that the copies before it have arrived. Work of one stream runs
 * in order, so the store begins when the copy engine has reported the copies done. In addition,
 * {@code cuStreamWriteValue64} with default flags issues a fence before its store, with the effect
 * of {@code __threadfence_system()}. So a reader that loads the word with acquire at system scope
 * sees all bytes copied before. Such readers are a kernel of the peer's GPU ({@code
 * SemaphoreDeviceHandle.await} and its twin), or a host thread that polls {@link #line}. The peer
 * polls its own memory: both the copies and the word end in the L2 cache that its kernels read
 * through.
 *
 * <p>Enqueuing an operation waits only for room in the driver's queue of the stream. Operations
 * leave that queue without the help of any thread.
 */
final class CudaIpcConnection extends MappedConnection {
  private static final int LINE_LENGTH = 64;

  /**
   * The number of polls of a flush between two checks of the stream's health; a check takes about a
   * microsecond.
   */
  private static final int POLLS_PER_HEALTH_CHECK = 4096;

  private final CudaStream stream;

  /**
   * A cache line to which the stream stores tickets. A thread uses it and the stream only while it
   * is counted in {@link #users}.
   */
  private final PinnedBuffer line;

  private final UseCount users = new UseCount(() -> BlockingTasks.run(this::unused));
  private final PendingFlushes flushes = new PendingFlushes(this::flushTimeout);

  /** Set while a thread enqueues an operation: a stream accepts one thread at a time. */
  private final AtomicBoolean posting = new AtomicBoolean();

  /** The last flush ticket. Written by the thread that has set {@link #posting}. */
  private volatile long ticket;

  private volatile long flushedAtClose;

  /**
   * The number of polls, which only determines when to check the stream's health. Lost updates
   * between threads are harmless.
   */
  private int polls;

  CudaIpcConnection(CudaIpcContext context, int remoteRank, int tag) {
    super(context, remoteRank, tag);
    CudaDevice device = context.device();
    this.line = device.allocatePinned(LINE_LENGTH);
    this.stream =
        Closing.onFailure(
            line::close,
            () -> device.createPreferredStream("ipc-rank" + remoteRank + "-tag" + tag));
  }

  /** Returns the stream. For tests, which enqueue work on it to delay a copy. */
  CudaStream stream() {
    return stream;
  }

  @Override
  protected void copy(long target, long source, long size) {
    beginPost();
    try {
      stream.copyAsync(target, source, size);
    } catch (DeviceFailure e) {
      throw failed(e);
    } finally {
      endPost();
    }
  }

  @Override
  protected void signal(long target, AtomicLong counter, long value) {
    beginPost();
    try {
      counter.set(value);
      // The stream's store is a release after the copies; pairs with the acquire of a reader that
      // waits for this word.
      stream.writeValue64(target, value);
    } catch (DeviceFailure e) {
      throw failed(e);
    } finally {
      endPost();
    }
  }

  /**
   * Makes this thread the one that posts. A proxy thread is nearly always alone. Threads that post
   * at once spin for as long as enqueuing one operation takes.
   */
  private void beginPost() {
    if (!users.enter()) {
      throw failure();
    }
    while (!posting.compareAndSet(false, true)) {
      Thread.onSpinWait();
    }
  }

  private void endPost() {
    // Release: pairs with the compareAndSet in beginPost(), so the next thread sees the stream as
    // this one left it.
    posting.setRelease(false);
    users.release();
  }

  @Override
  public long beginFlush() {
    checkWorking();
    beginPost();
    try {
      long next = ticket + 1;
      ticket = next;
      // The store is ordered after everything posted so far; pairs with the acquire in
      // flushedTicket().
      stream.writeValue64(line.deviceAddress(), next);
      return next;
    } catch (DeviceFailure e) {
      throw failed(e);
    } finally {
      endPost();
    }
  }

  @Override
  public long flushedTicket() {
    if (!users.enter()) {
      return flushedAtClose;
    }
    try {
      // Acquire: pairs with the stream's store, which follows the copies that the ticket covers.
      long flushed = line.buffer().getLongAcquire(0);
      if (flushed < ticket && ++polls % POLLS_PER_HEALTH_CHECK == 0) {
        checkHealth();
      }
      return flushed;
    } finally {
      users.release();
    }
  }

  /**
   * Fails the connection if the GPU has failed. A failed GPU stores no more tickets, so no poll
   * would detect the failure.
   */
  private void checkHealth() {
    try {
      stream.requireHealthy();
    } catch (DeviceFailure e) {
      failed(e);
    }
  }

  @Override
  public CompletableFuture<Void> flush(Duration timeout) {
    Deadline deadline = Deadline.after(timeout);
    try {
      checkWorking();
      return flushes.add(deadline, completion().handle(this::failUnlessDone));
    } catch (FluxCclException e) {
      return CompletableFuture.failedFuture(e);
    }
  }

  private CompletableFuture<Void> completion() {
    beginPost();
    try {
      return stream.completion();
    } catch (DeviceFailure e) {
      throw failed(e);
    } finally {
      endPost();
    }
  }

  private Void failUnlessDone(Void done, Throwable error) {
    if (error != null) {
      throw failed(FluxCclException.from(error));
    }
    return done;
  }

  /** Fails this connection, unless it has failed before. Returns the connection's failure. */
  private FluxCclException failed(FluxCclException cause) {
    if (cause instanceof DeviceFailure) {
      fail(cause.getMessage(), cause);
    } else {
      end(cause);
    }
    return failure();
  }

  @Override
  protected void onFailure(FluxCclException reason) {
    flushes.fail(reason);
  }

  @Override
  protected void free() {
    if (users.beginClose()) {
      users.release();
    }
  }

  /**
   * Closes the stream and the line. Called once, after close, when no thread posts or polls; takes
   * stream locks.
   */
  private void unused() {
    freed();
    flushedAtClose = line.buffer().getLongAcquire(0);
    // The line closes before the stream, so that it outlives the stores that the stream still has
    // to execute.
    line.close();
    stream.close();
  }
}
