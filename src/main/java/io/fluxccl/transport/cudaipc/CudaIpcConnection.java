package io.fluxccl.transport.cudaipc;

import io.fluxccl.Deadline;
import io.fluxccl.DeviceFailure;
import io.fluxccl.FluxCclException;
import io.fluxccl.device.PinnedBuffer;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.device.cuda.CudaStream;
import io.fluxccl.transport.PostUseCount;
import io.fluxccl.transport.mapped.MappedConnection;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicLong;

/**
 * A connection whose writes are asynchronous copies on a stream of its own, and whose signals and
 * flush tickets are words that the same stream stores behind them.
 *
 * <p>A word that has arrived proves that the copies before it have arrived: work of one stream runs
 * in order, so the store begins when the copy engine has reported the copies done; and {@code
 * cuStreamWriteValue64} with default flags puts a fence before its store with the effect of {@code
 * __threadfence_system()}. So a reader of the word with acquire at system scope sees all that was
 * copied before; such readers are a kernel of the peer's GPU ({@code SemaphoreDeviceHandle.await}
 * and its twin), or a host thread for the pinned line here. The peer polls its own memory: both the
 * copies and the word end in the L2 cache that its kernels read through.
 *
 * <p>Enqueuing waits only for room in the driver's queue of the stream, which copies and stores
 * leave without help of any thread.
 */
final class CudaIpcConnection extends MappedConnection {
  private static final int LINE_LENGTH = 64;

  /**
   * Polls of a flush between two checks of the stream's health; a check costs about a microsecond.
   */
  private static final int POLLS_PER_HEALTH_CHECK = 4096;

  private static final VarHandle POSTING;

  static {
    try {
      POSTING = MethodHandles.lookup().findVarHandle(CudaIpcConnection.class, "posting", int.class);
    } catch (ReflectiveOperationException e) {
      throw new ExceptionInInitializerError(e);
    }
  }

  private final CudaStream stream;

  /** A cache line that the stream stores tickets to. Used, as the stream, within {@link #users}. */
  private final PinnedBuffer line;

  private final PostUseCount users = new PostUseCount(() -> PostUseCount.runBlocking(this::unused));
  private final PendingFlushes flushes = new PendingFlushes(this::flushTimeout);

  /** 1 while a thread enqueues: a stream takes one thread at a time. */
  private volatile int posting;

  /** Written by the thread that is posting. */
  private volatile long ticket;

  private volatile long flushedAtClose;

  /** Only decides when to check the stream's health, so threads may lose counts to each other. */
  private int polls;

  CudaIpcConnection(CudaIpcContext context, int remoteRank, int tag) {
    super(context, remoteRank, tag);
    CudaDevice device = context.device();
    this.line = device.allocatePinned(LINE_LENGTH);
    try {
      this.stream = device.createPreferredStream("ipc-rank" + remoteRank + "-tag" + tag);
    } catch (RuntimeException | Error e) {
      line.close();
      throw e;
    }
  }

  /** Returns the stream. For tests, which enqueue work that a copy then has to wait for. */
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
      // Released behind the copies; pairs with the acquire of a reader that waits for this word.
      stream.writeValue64(target, value);
    } catch (DeviceFailure e) {
      throw failed(e);
    } finally {
      endPost();
    }
  }

  /**
   * Makes this thread the one that posts. A proxy thread is nearly always alone; two threads that
   * post at once wait for each other as long as enqueuing one operation takes.
   */
  private void beginPost() {
    if (!users.enter()) {
      throw failure();
    }
    while (!POSTING.compareAndSet(this, 0, 1)) {
      Thread.onSpinWait();
    }
  }

  private void endPost() {
    // Pairs with the compareAndSet above: the next thread sees how this one left the stream.
    POSTING.setRelease(this, 0);
    users.release();
  }

  @Override
  public long beginFlush() {
    checkWorking();
    beginPost();
    try {
      long next = ticket + 1;
      ticket = next;
      // Behind everything posted so far; pairs with the acquire in flushedTicket().
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
      // Pairs with the stream's store, which comes behind the copies that it covers.
      long flushed = line.buffer().getLongAcquire(0);
      if (flushed < ticket && ++polls % POLLS_PER_HEALTH_CHECK == 0) {
        checkHealth();
      }
      return flushed;
    } finally {
      users.release();
    }
  }

  /** A GPU that failed stores no more tickets, and nothing else would report that. */
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

  /** Fails this connection, unless it has failed before; returns its failure. */
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
    users.close();
  }

  /** Called once this connection is closed and no thread posts or polls; takes stream locks. */
  private void unused() {
    freed();
    flushedAtClose = line.buffer().getLongAcquire(0);
    // Before the stream, so that the line outlives what the stream still has to store to it.
    line.close();
    stream.close();
  }
}
