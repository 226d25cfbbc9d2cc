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
import java.nio.charset.StandardCharsets;
import java.time.Duration;
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

/** A rank's part in a job of NCCL's, which can be ended from any thread. */
final class NcclCommunicator implements AutoCloseable {
  private static final Logger LOG = LoggerFactory.getLogger(NcclCommunicator.class);
  private static final byte READY = 1;
  private static final Duration FAREWELL = Duration.ofSeconds(5);

  private final NcclLibrary library;
  private final CudaDevice device;
  private final int rank;
  private final long handle;
  private final AtomicBoolean leaving = new AtomicBoolean();
  private final CompletableFuture<Void> left = new CompletableFuture<>();

  private NcclCommunicator(NcclLibrary library, CudaDevice device, int rank, long handle) {
    this.library = library;
    this.device = device;
    this.rank = rank;
    this.handle = handle;
  }

  /**
   * Joins all ranks' NCCLs. Called by every rank; fails on all if one has no NCCL or no GPU.
   *
   * @param communicator of the ranks
   * @param environment where to look for NCCL
   * @param limit how long it may take
   */
  static NcclCommunicator join(
      Communicator communicator, Map<String, String> environment, Duration limit) {
    Bootstrap bootstrap = communicator.bootstrap();
    Invitation mine = Invitation.of(communicator, environment);
    List<byte[]> all = tellAll(bootstrap, mine, limit);
    if (mine.refused != null) {
      throw mine.refused;
    }
    for (int peer = 0; peer < all.size(); peer++) {
      Invitation.refuseUnlessReady(all.get(peer), peer);
    }
    byte[] id = new byte[NcclCalls.UNIQUE_ID_BYTES];
    System.arraycopy(all.get(0), 1, id, 0, id.length);
    CudaDevice device = (CudaDevice) communicator.device();
    long handle = init(mine.library, communicator, device, id, limit);
    return new NcclCommunicator(mine.library, device, bootstrap.rank(), handle);
  }

  private static List<byte[]> tellAll(Bootstrap bootstrap, Invitation mine, Duration limit) {
    try {
      return bootstrap.allGather(mine.message(), Deadline.after(limit)).join();
    } catch (CompletionException e) {
      throw FluxCclException.from(e);
    }
  }

  /** What a rank tells the others: that it can come, and if it is the first, the job's id. */
  private static final class Invitation {
    private NcclLibrary library;
    private FluxCclException refused;
    private byte[] id = new byte[NcclCalls.UNIQUE_ID_BYTES];

    static Invitation of(Communicator communicator, Map<String, String> environment) {
      Invitation invitation = new Invitation();
      int rank = communicator.bootstrap().rank();
      try {
        if (!(communicator.device() instanceof CudaDevice)) {
          throw new InvalidUsage(
              "the comparison with NCCL needs GPUs; rank "
                  + rank
                  + " is on "
                  + communicator.device().description());
        }
        invitation.library = NcclLibrary.open(environment);
        if (rank == 0) {
          ((CudaDevice) communicator.device()).makeCurrent();
          invitation.library.check(
              NcclCalls.uniqueId(invitation.library.handle(), invitation.id), "ncclGetUniqueId");
        }
      } catch (FluxCclException e) {
        invitation.refused = e;
      }
      return invitation;
    }

    byte[] message() {
      byte[] content = refused == null ? id : refused.getMessage().getBytes(StandardCharsets.UTF_8);
      byte[] message = new byte[1 + content.length];
      message[0] = refused == null ? READY : 0;
      System.arraycopy(content, 0, message, 1, content.length);
      return message;
    }

    static void refuseUnlessReady(byte[] told, int peer) {
      if (told.length < 1 || told[0] != READY || told.length != 1 + NcclCalls.UNIQUE_ID_BYTES) {
        int length = Math.max(0, told.length - 1);
        throw new InvalidUsage(
            "rank " + peer + ": " + new String(told, 1, length, StandardCharsets.UTF_8));
      }
    }
  }

  /** On a thread of its own, because nothing ends this call when a rank never comes. */
  private static long init(
      NcclLibrary library,
      Communicator communicator,
      CudaDevice device,
      byte[] id,
      Duration limit) {
    Bootstrap bootstrap = communicator.bootstrap();
    int rank = bootstrap.rank();
    CompletableFuture<Long> joined = communicator.inFlight(new CompletableFuture<>());
    Runnable init =
        () -> {
          try {
            device.makeCurrent();
            long[] result = new long[1];
            int status = NcclCalls.init(library.handle(), id, bootstrap.nRanks(), rank, result);
            library.check(status, "ncclCommInitRank on rank " + rank);
            if (!joined.complete(result[0])) {
              NcclCalls.abort(library.handle(), result[0]); // too late: nobody waits any more
            }
          } catch (RuntimeException | Error e) {
            joined.completeExceptionally(e);
          }
        };
    daemon("nccl-init-" + rank, init);
    try {
      return joined.get(limit.toNanos(), TimeUnit.NANOSECONDS);
    } catch (TimeoutException e) {
      Timeout timeout =
          new Timeout(
              FluxCclException.NO_RANK,
              "ncclCommInitRank on rank "
                  + rank
                  + " has not returned within "
                  + limit.toMillis()
                  + " ms; NCCL_DEBUG=INFO shows how far it got");
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

  private static void daemon(String name, Runnable task) {
    Thread thread = new Thread(task, name);
    thread.setDaemon(true);
    thread.start();
  }

  NcclLibrary library() {
    return library;
  }

  /**
   * Enqueues a call; may block while NCCL connects its ranks.
   *
   * @throws io.fluxccl.DeviceFailure if NCCL refuses
   */
  void enqueue(NcclCall call, CudaStream stream, String what) {
    device.makeCurrent();
    int status = call.enqueue(library.handle(), handle, CudaDriver.valueOf(stream.handle()));
    library.check(status, what + " on rank " + rank);
  }

  /** Throws what has gone wrong after the calls had returned. */
  void requireHealthy(String what) {
    if (!leaving.get()) {
      library.check(NcclCalls.asyncError(library.handle(), handle), what + " on rank " + rank);
    }
  }

  /** Ends it at once, with the kernels that wait for other ranks. Waits for nothing. */
  void abort() {
    leave("nccl-abort-", () -> NcclCalls.abort(library.handle(), handle));
  }

  /**
   * Leaves the job, whose work is done or aborted, so that its memory and its GPU may be closed;
   * gives up on NCCL when that takes seconds.
   */
  @Override
  public void close() {
    leave("nccl-destroy-", () -> NcclCalls.destroy(library.handle(), handle));
    try {
      left.get(FAREWELL.toSeconds(), TimeUnit.SECONDS);
    } catch (TimeoutException | ExecutionException e) {
      LOG.warn("rank {}: NCCL has not let go within {}", rank, FAREWELL, e);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
  }

  /** Only the first way of leaving counts. */
  private void leave(String name, Runnable call) {
    if (!leaving.compareAndSet(false, true)) {
      return;
    }
    daemon(
        name + rank,
        () -> {
          try {
            device.makeCurrent();
            call.run();
            left.complete(null);
          } catch (RuntimeException | Error e) {
            left.completeExceptionally(e);
          }
        });
  }
}
