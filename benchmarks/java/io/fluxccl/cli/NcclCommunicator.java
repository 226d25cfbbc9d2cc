// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.Timeout;
import io.fluxccl.bootstrap.Bootstrap;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.device.cuda.CudaDriver;
import io.fluxccl.device.cuda.CudaStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicBoolean;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** A rank of an NCCL communicator, which any thread can abort. */
final class NcclCommunicator implements AutoCloseable {
  private static final Logger LOG = LoggerFactory.getLogger(NcclCommunicator.class);
  private static final byte READY = 1;
  private static final Duration CLOSE_LIMIT = Duration.ofSeconds(5);

  private final NcclLibrary library;
  private final CudaDevice device;
  private final int rank;
  private final long handle;
  private final AtomicBoolean ending = new AtomicBoolean();
  private final CompletableFuture<Void> ended = new CompletableFuture<>();

  private NcclCommunicator(NcclLibrary library, CudaDevice device, int rank, long handle) {
    this.library = library;
    this.device = device;
    this.rank = rank;
    this.handle = handle;
  }

  /**
   * Creates an NCCL communicator of all ranks. Called by every rank; fails on all of them if one
   * has no NCCL or no GPU.
   *
   * @param communicator of the ranks
   * @param environment of the process
   * @param limit how long it may take
   */
  static NcclCommunicator join(
      Communicator communicator, Map<String, String> environment, Duration limit) {
    Bootstrap bootstrap = communicator.bootstrap();
    Readiness mine = Readiness.of(communicator, environment);
    List<byte[]> all;
    try {
      all = bootstrap.allGather(mine.message(), Deadline.after(limit)).join();
    } catch (CompletionException e) {
      throw FluxCclException.from(e);
    }
    if (mine.refused() != null) {
      throw mine.refused();
    }
    for (int peer = 0; peer < all.size(); peer++) {
      Readiness.requireReady(all.get(peer), peer);
    }
    byte[] id = Arrays.copyOfRange(all.get(0), 1, 1 + NcclCalls.UNIQUE_ID_BYTES);
    long handle = init(mine.library(), communicator, id, limit);
    CudaDevice device = (CudaDevice) communicator.device();
    return new NcclCommunicator(mine.library(), device, bootstrap.rank(), handle);
  }

  /**
   * Whether a rank can join.
   *
   * @param library its NCCL, or null
   * @param id of the new communicator, from rank 0; zeros from others
   * @param refused why the rank can't join, or null
   */
  private record Readiness(NcclLibrary library, byte[] id, FluxCclException refused) {
    static Readiness of(Communicator communicator, Map<String, String> environment) {
      byte[] id = new byte[NcclCalls.UNIQUE_ID_BYTES];
      int rank = communicator.bootstrap().rank();
      try {
        if (!(communicator.device() instanceof CudaDevice gpu)) {
          throw InvalidUsage.of(
              "the comparison with NCCL needs GPUs; rank %d is on %s",
              rank, communicator.device().description());
        }
        NcclLibrary library = NcclLibrary.open(environment);
        if (rank == 0) {
          gpu.makeCurrent();
          library.check(NcclCalls.uniqueId(library.handle(), id), "ncclGetUniqueId");
        }
        return new Readiness(library, id, null);
      } catch (FluxCclException e) {
        return new Readiness(null, id, e);
      }
    }

    byte[] message() {
      byte[] content = refused == null ? id : refused.getMessage().getBytes(StandardCharsets.UTF_8);
      return ByteBuffer.allocate(1 + content.length)
          .put(refused == null ? READY : 0)
          .put(content)
          .array();
    }

    static void requireReady(byte[] message, int peer) {
      if (message.length != 1 + NcclCalls.UNIQUE_ID_BYTES || message[0] != READY) {
        byte[] reason = Arrays.copyOfRange(message, 1, Math.max(1, message.length));
        throw new InvalidUsage("rank " + peer + ": " + new String(reason, StandardCharsets.UTF_8));
      }
    }
  }

  /** Runs on a thread of its own, because NCCL waits without a limit for a missing rank. */
  private static long init(
      NcclLibrary library, Communicator communicator, byte[] id, Duration limit) {
    int rank = communicator.bootstrap().rank();
    int nRanks = communicator.bootstrap().nRanks();
    CudaDevice device = (CudaDevice) communicator.device();
    CompletableFuture<Long> joined = communicator.inFlight(new CompletableFuture<>());
    Runnable init =
        () -> {
          long[] result = new long[1];
          int status = NcclCalls.init(library.handle(), id, nRanks, rank, result);
          library.check(status, "ncclCommInitRank on rank " + rank);
          if (!joined.complete(result[0])) {
            NcclCalls.abort(library.handle(), result[0]); // the time limit has passed
          }
        };
    runOnDaemon("nccl-init-" + rank, device, init, joined);
    try {
      return joined.get(limit.toNanos(), TimeUnit.NANOSECONDS);
    } catch (TimeoutException e) {
      Timeout timeout =
          Timeout.of(
              FluxCclException.NO_RANK,
              "ncclCommInitRank on rank %d has not returned within %d ms; NCCL_DEBUG=INFO shows how"
                  + " far it got",
              rank,
              limit.toMillis());
      joined.completeExceptionally(timeout);
      throw timeout;
    } catch (ExecutionException e) {
      throw FluxCclException.from(e);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      joined.completeExceptionally(e);
      throw FluxCclException.from(e);
    }
  }

  private static void runOnDaemon(
      String name, CudaDevice device, Runnable task, CompletableFuture<?> failed) {
    Runnable run =
        () -> {
          try {
            device.makeCurrent();
            task.run();
          } catch (RuntimeException | Error e) {
            failed.completeExceptionally(e);
          }
        };
    Thread thread = new Thread(run, name);
    thread.setDaemon(true);
    thread.start();
  }

  NcclLibrary library() {
    return library;
  }

  /**
   * Memory of NCCL's own that is a symmetric window of all ranks.
   *
   * @param handle of the window
   */
  record Window(long handle, long address, long bytes) {}

  /**
   * Makes windows. Called by every rank, at the same point. All ranks agree after each step,
   * because NCCL registers a window on all ranks at once and waits without a limit for a rank that
   * does not register its own. If a rank does not return in time, NCCL and the job are aborted, and
   * the memory stays until the process ends.
   *
   * @param count how many
   * @param bytes of each, the same on every rank
   * @param limit how long each step may take
   * @return no window on any rank, if the library or one of the ranks cannot have them
   */
  List<Window> windows(int count, long bytes, Communicator communicator, Duration limit) {
    List<Long> memory = allocate(count, bytes);
    List<Window> windows = new ArrayList<>();
    boolean agreed = agree(memory.size() == count, communicator, limit);
    for (int i = 0; agreed && i < count; i++) {
      long window = register(memory.get(i), bytes, communicator, limit);
      if (window != 0) {
        windows.add(new Window(window, memory.get(i), bytes));
      }
      agreed = agree(window != 0, communicator, limit);
    }
    if (agreed) {
      return windows;
    }
    LOG.info("rank {}: NCCL has no symmetric windows here; its plain path is measured", rank);
    deregister(windows);
    memory.forEach(address -> NcclCalls.free(library.handle(), address));
    return List.of();
  }

  /**
   * Returns the addresses of new memory; fewer if the library can't have windows or more memory.
   */
  private List<Long> allocate(int count, long bytes) {
    List<Long> memory = new ArrayList<>();
    device.makeCurrent();
    long[] address = new long[1];
    while (memory.size() < count
        && NcclCalls.hasWindows(library.handle())
        && NcclCalls.allocate(library.handle(), bytes, address) == 0) {
      memory.add(address[0]);
    }
    return memory;
  }

  /** Returns whether all ranks can continue. */
  private static boolean agree(boolean can, Communicator communicator, Duration limit) {
    try {
      return communicator
          .bootstrap()
          .allGather(new byte[] {(byte) (can ? READY : 0)}, Deadline.after(limit))
          .join()
          .stream()
          .allMatch(each -> each.length == 1 && each[0] == READY);
    } catch (CompletionException e) {
      throw FluxCclException.from(e);
    }
  }

  /** Returns the window of some memory, or 0 if NCCL refuses it. */
  private long register(long address, long bytes, Communicator communicator, Duration limit) {
    CompletableFuture<Long> made = communicator.inFlight(new CompletableFuture<>());
    Runnable task =
        () -> {
          long[] result = new long[1];
          int status = NcclCalls.register(library.handle(), handle, address, bytes, result);
          made.complete(status == 0 ? result[0] : 0);
        };
    runOnDaemon("nccl-windows-" + rank, device, task, made);
    try {
      return made.get(limit.toNanos(), TimeUnit.NANOSECONDS);
    } catch (TimeoutException e) {
      throw aborted(
          communicator,
          Timeout.of(
              FluxCclException.NO_RANK,
              "ncclCommWindowRegister on rank %d has not returned within %d ms; NCCL_DEBUG=INFO"
                  + " shows the reason",
              rank,
              limit.toMillis()));
    } catch (ExecutionException e) {
      throw aborted(communicator, FluxCclException.from(e));
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw aborted(communicator, FluxCclException.from(e));
    }
  }

  /** Ends the call of NCCL that did not return, and notifies the other ranks. */
  private FluxCclException aborted(Communicator communicator, FluxCclException reason) {
    abort();
    communicator.abort(reason);
    return reason;
  }

  /** Ends windows, which no work uses any more, and frees their memory. */
  void release(List<Window> windows) {
    deregister(windows);
    windows.forEach(window -> NcclCalls.free(library.handle(), window.address()));
  }

  private void deregister(List<Window> windows) {
    device.makeCurrent();
    windows.forEach(window -> NcclCalls.deregister(library.handle(), handle, window.handle()));
  }

  /** One of the functions that {@link NcclCalls} has for collectives. */
  interface Call {
    /** Enqueues the call and returns an ncclResult_t; the arguments are native handles. */
    int enqueue(long library, long communicator, long stream);
  }

  /**
   * Enqueues a call; may block while NCCL connects its ranks.
   *
   * @throws io.fluxccl.DeviceFailure if NCCL refuses it
   */
  void enqueue(Call call, CudaStream stream, String what) {
    device.makeCurrent();
    int status = call.enqueue(library.handle(), handle, CudaDriver.valueOf(stream.handle()));
    library.check(status, what + " on rank " + rank);
  }

  /** Throws the failure of an earlier call, if there was one. */
  void requireHealthy(String what) {
    if (!ending.get()) {
      library.check(NcclCalls.asyncError(library.handle(), handle), what + " on rank " + rank);
    }
  }

  /** Ends it at once, with the kernels that wait for other ranks. Doesn't wait. */
  void abort() {
    end("nccl-abort-", () -> NcclCalls.abort(library.handle(), handle));
  }

  /** Destroys it once its work is done or aborted. Gives up on NCCL after some seconds. */
  @Override
  public void close() {
    end("nccl-destroy-", () -> NcclCalls.destroy(library.handle(), handle));
    try {
      ended.get(CLOSE_LIMIT.toSeconds(), TimeUnit.SECONDS);
    } catch (TimeoutException | ExecutionException e) {
      LOG.warn("rank {}: NCCL's communicator did not close within {}", rank, CLOSE_LIMIT, e);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
  }

  /** Aborts or destroys it; only the first of both calls counts. */
  private void end(String name, Runnable call) {
    if (ending.compareAndSet(false, true)) {
      Runnable task =
          () -> {
            call.run();
            ended.complete(null);
          };
      runOnDaemon(name + rank, device, task, ended);
    }
  }
}
