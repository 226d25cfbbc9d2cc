package io.fluxccl.transport.cudaipc;

import io.fluxccl.Aborted;
import io.fluxccl.Deadline;
import io.fluxccl.DeviceFailure;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.Timeout;
import io.fluxccl.TransportFailure;
import io.fluxccl.device.PinnedBuffer;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.device.cuda.CudaStream;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.MemoryHandle;
import io.fluxccl.transport.RegisteredMemory;
import io.fluxccl.transport.Transport;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicLong;

/**
 * A connection whose writes are asynchronous copies on a stream of its own, and whose signals and
 * flush tickets are words that the same stream stores behind them.
 *
 * <p>Why a word that is there means that the copies before it are: work of one stream runs in
 * order, so the store begins when the copy engine has reported the copies done; and {@code
 * cuStreamWriteValue64} with default flags puts a fence before its store with the effect of {@code
 * __threadfence_system()}. So whoever reads the word with acquire at system scope, a kernel of the
 * peer's GPU ({@code SemaphoreDeviceHandle.await} and its twin) or a host thread for the pinned
 * line here, sees all that was copied before. The peer polls its own memory: both the copies and
 * the word end in the L2 cache that its kernels read through.
 *
 * <p>Enqueuing waits for nothing but room in the driver's queue of the stream, which copies and
 * stores leave without anybody's help.
 */
final class CudaIpcConnection implements Connection {
  private static final int LINE_LENGTH = 64;

  /**
   * Polls of a flush between two looks at the stream's health; a look costs about a microsecond.
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

  private final CudaIpcContext context;
  private final int remoteRank;
  private final int tag;
  private final CudaStream stream;

  /** A cache line that the stream stores tickets to. Used, as the stream, within {@link #users}. */
  private final PinnedBuffer line;

  private final UserCount users = new UserCount(this::letGo);
  private final PendingFlushes flushes = new PendingFlushes(this::timeout);
  private final CompletableFuture<FluxCclException> failed = new CompletableFuture<>();
  private volatile FluxCclException failure;

  /** 1 while a thread enqueues, which the stream wants done by one at a time. */
  private volatile int posting;

  /** Written by whoever is posting. */
  private volatile long ticket;

  private volatile long flushedAtClose;

  /** Only decides when to look at the stream's health, so threads may lose counts to each other. */
  private int polls;

  CudaIpcConnection(CudaIpcContext context, int remoteRank, int tag) {
    this.context = context;
    this.remoteRank = remoteRank;
    this.tag = tag;
    CudaDevice device = context.device();
    this.line = device.allocatePinned(LINE_LENGTH);
    try {
      this.stream = device.createPreferredStream("ipc-rank" + remoteRank + "-tag" + tag);
    } catch (RuntimeException | Error e) {
      line.close();
      throw e;
    }
  }

  @Override
  public Transport transport() {
    return Transport.CUDA_IPC;
  }

  @Override
  public int remoteRank() {
    return remoteRank;
  }

  @Override
  public int tag() {
    return tag;
  }

  /** For tests, which enqueue what a copy then has to wait for. */
  CudaStream stream() {
    return stream;
  }

  @Override
  public Connection write(
      RegisteredMemory target,
      long targetOffset,
      RegisteredMemory source,
      long sourceOffset,
      long size) {
    throwFailure();
    CudaIpcMemoryHandle to = handleOf("target", target, remoteRank);
    CudaIpcMemoryHandle from = handleOf("source", source, context.environment().rank());
    target.checkRange("target", targetOffset, size);
    source.checkRange("source", sourceOffset, size);
    enter("target", to, target);
    try {
      enter("source", from, source);
      try {
        beginPost();
        try {
          if (size > 0) {
            stream.copyAsync(to.address() + targetOffset, from.address() + sourceOffset, size);
          }
        } catch (DeviceFailure e) {
          throw fail(e);
        } finally {
          endPost();
        }
      } finally {
        from.users().leave();
      }
    } finally {
      to.users().leave();
    }
    return this;
  }

  @Override
  public Connection updateAndSync(
      RegisteredMemory target, long targetOffset, AtomicLong counter, long newValue) {
    throwFailure();
    CudaIpcMemoryHandle to = handleOf("target", target, remoteRank);
    target.checkRange("target", targetOffset, Long.BYTES);
    long address = to.address() + targetOffset;
    if ((address & Long.BYTES - 1) != 0) {
      throw new InvalidUsage(
          "targetOffset=" + targetOffset + " is not at a multiple of 8 of rank " + remoteRank);
    }
    enter("target", to, target);
    try {
      beginPost();
      try {
        counter.set(newValue);
        // Released behind the copies; pairs with the acquire of whoever waits for this word.
        stream.writeValue64(address, newValue);
      } catch (DeviceFailure e) {
        throw fail(e);
      } finally {
        endPost();
      }
    } finally {
      to.users().leave();
    }
    return this;
  }

  private CudaIpcMemoryHandle handleOf(String what, RegisteredMemory memory, int rank) {
    if (memory.rank() != rank) {
      throw new InvalidUsage(
          what + " is memory of rank " + memory.rank() + "; here it must be rank " + rank + "'s");
    }
    MemoryHandle handle = memory.handle(Transport.CUDA_IPC);
    if (!(handle instanceof CudaIpcMemoryHandle)
        || !((CudaIpcMemoryHandle) handle).belongsTo(context)
        || ((CudaIpcMemoryHandle) handle).size() < memory.size()) {
      throw new InvalidUsage(
          what + " " + memory + " was not registered with, or received by, this communicator");
    }
    return (CudaIpcMemoryHandle) handle;
  }

  private static void enter(String what, CudaIpcMemoryHandle handle, RegisteredMemory memory) {
    if (!handle.users().enter()) {
      throw new InvalidUsage(what + " " + memory + " is closed");
    }
  }

  /**
   * Makes this thread the one that posts. A proxy thread is alone, nearly always; two threads that
   * post at once wait for each other as long as enqueuing one operation takes.
   */
  private void beginPost() {
    if (!users.enter()) {
      throwFailure();
    }
    while (!POSTING.compareAndSet(this, 0, 1)) {
      Thread.onSpinWait();
    }
  }

  private void endPost() {
    // Pairs with the compareAndSet above: the next sees how this one left the stream.
    POSTING.setRelease(this, 0);
    users.leave();
  }

  @Override
  public long beginFlush() {
    throwFailure();
    beginPost();
    try {
      long next = ticket + 1;
      ticket = next;
      // Behind everything posted so far; pairs with the acquire in flushedTicket().
      stream.writeValue64(line.deviceAddress(), next);
      return next;
    } catch (DeviceFailure e) {
      throw fail(e);
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
      users.leave();
    }
  }

  /** A GPU that failed stores no more tickets, and nobody else would say so. */
  private void checkHealth() {
    try {
      stream.requireHealthy();
    } catch (DeviceFailure e) {
      fail(e);
    }
  }

  @Override
  public CompletableFuture<Void> flush(Duration timeout) {
    Deadline deadline = Deadline.after(timeout);
    CompletableFuture<Void> done;
    try {
      throwFailure();
      beginPost();
      try {
        done = stream.completion();
      } finally {
        endPost();
      }
    } catch (DeviceFailure e) {
      return CompletableFuture.failedFuture(fail(e));
    } catch (FluxCclException e) {
      return CompletableFuture.failedFuture(e);
    }
    CompletableFuture<Void> checked =
        done.handle(
            (nothing, error) -> {
              if (error != null) {
                throw fail(FluxCclException.from(error));
              }
              return null;
            });
    return flushes.add(deadline, checked);
  }

  private FluxCclException timeout(Deadline deadline) {
    return new Timeout(
        remoteRank,
        "the CUDA_IPC flush to rank "
            + remoteRank
            + " tag="
            + tag
            + " was not done within "
            + deadline.timeout().toMillis()
            + " ms");
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

  /** Ends the connection, if nothing else has; gives why it ended. */
  private FluxCclException fail(FluxCclException cause) {
    FluxCclException reason = cause;
    if (cause instanceof DeviceFailure) {
      reason =
          new TransportFailure(
              remoteRank,
              "CUDA_IPC to rank " + remoteRank + " tag=" + tag + " failed: " + cause.getMessage(),
              cause);
    }
    synchronized (this) {
      if (failure != null) {
        return failure;
      }
      failure = reason;
    }
    flushes.fail(reason);
    failed.complete(reason);
    return reason;
  }

  @Override
  public void close() {
    fail(
        new Aborted(
            FluxCclException.NO_RANK,
            "the CUDA_IPC connection to rank " + remoteRank + " tag=" + tag + " was closed"));
    users.close();
  }

  /** Called once nobody posts or polls any more; takes locks of the streams. */
  private void letGo() {
    context.remove(this);
    flushedAtClose = line.buffer().getLongAcquire(0);
    // Before the stream, so that the line outlives what the stream still has to store to it.
    line.close();
    stream.close();
  }

  @Override
  public String toString() {
    return "CudaIpcConnection(remoteRank=" + remoteRank + ", tag=" + tag + ")";
  }
}
