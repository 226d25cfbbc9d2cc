package io.fluxccl.group;

import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.fluxccl.bootstrap.Bootstrap;
import io.fluxccl.bootstrap.BootstrapOptions;
import io.fluxccl.bootstrap.LocalBootstrap;
import io.fluxccl.bootstrap.RankEnvironment;
import io.fluxccl.bootstrap.TcpBootstrap;
import io.fluxccl.collective.Collectives;
import io.fluxccl.collective.CollectivesOptions;
import io.fluxccl.collective.Pipeline;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.communicator.CommunicatorOptions;
import io.fluxccl.concurrent.Closing;
import io.fluxccl.device.Device;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Supplier;
import org.agrona.CloseHelper;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import reactor.core.scheduler.Schedulers;

/**
 * This process's place in a job: who it is, a device, a communicator with all ranks, and the
 * collectives. Thread-safe.
 *
 * <pre>{@code
 * try (RankGroup group = RankGroup.fromEnvironment().join();
 *     DeviceBuffer x = group.device().allocate(4 << 20)) {
 *   group.collectives().allReduce(x, DataType.FLOAT32, ReduceOp.SUM).block();
 * }
 * }</pre>
 */
public final class RankGroup implements AutoCloseable {
  private static final Logger LOG = LoggerFactory.getLogger(RankGroup.class);
  private static final Duration FAREWELL = Duration.ofSeconds(5);
  private static final long CLOSE_SECONDS = 2 * FAREWELL.toSeconds();

  private static final Executor MAY_BLOCK = Schedulers.boundedElastic()::schedule;

  /** Tags of the group's own connections begin here, out of the way of users' tags. */
  private static final int COLLECTIVES_TAG = 1 << 20;

  private final Bootstrap bootstrap;
  private final Device device;
  private final Communicator communicator;
  private final Duration timeout;

  // Set once, before anybody else sees the group.
  private Collectives collectives;

  // Guarded by this.
  private CompletableFuture<Void> closed;

  /** Of a bootstrap that becomes its own, and a device that it opens. */
  RankGroup(Bootstrap bootstrap, Supplier<Device> device, RankGroupOptions options) {
    this.bootstrap = bootstrap;
    this.timeout = options.timeout();
    Device opened = null;
    try {
      opened = device.get();
      this.device = opened;
      this.communicator =
          Communicator.create(
              bootstrap, opened, CommunicatorOptions.DEFAULT.withSetupTimeout(timeout));
    } catch (RuntimeException | Error e) {
      // The others need not wait for this rank.
      bootstrap.abort(FluxCclException.from(e).attributedTo(bootstrap.rank()));
      bootstrap.closeAsync();
      CloseHelper.quietClose(opened);
      throw e;
    }
  }

  private static RankGroup open(Bootstrap bootstrap, int localRank, RankGroupOptions options) {
    return new RankGroup(
        bootstrap, () -> options.device().open(localRank, "fluxccl-" + bootstrap.rank()), options);
  }

  /** {@link #fromEnvironment(Duration)} with 30 s. */
  public static CompletableFuture<RankGroup> fromEnvironment() {
    return fromEnvironment(Deadline.DEFAULT_TIMEOUT);
  }

  /**
   * Joins the job that this process was started for: by {@code fluxccl launch}, mpirun, srun,
   * torchrun, or by FLUXCCL_* variables. Without any of them, a job of one rank.
   *
   * @param timeout of finding the others, and later of each set-up
   * @return the group, once every rank is there; or why not, naming who is missing, or what is
   *     wrong with the environment. What is chained to it may block. When it has ended otherwise
   *     (it was cancelled, or given a time limit), the group is closed as soon as it is there
   */
  public static CompletableFuture<RankGroup> fromEnvironment(Duration timeout) {
    return joining(() -> RankGroupOptions.fromEnvironment().withTimeout(timeout));
  }

  /**
   * {@link #fromEnvironment(Duration)} with options. Without a choice of its own a rank gets the
   * GPU of its number on this host, counting round where there are fewer GPUs than ranks; the
   * host's memory and cores where there are none.
   *
   * @param groupOptions time limit and device
   * @return as {@link #fromEnvironment(Duration)}
   */
  public static CompletableFuture<RankGroup> fromEnvironment(RankGroupOptions groupOptions) {
    return joining(() -> groupOptions);
  }

  private static CompletableFuture<RankGroup> joining(Supplier<RankGroupOptions> options) {
    CompletableFuture<RankGroup> result = new CompletableFuture<>();
    // What the environment gets wrong is the future's failure, as all else is.
    CompletableFuture.completedFuture(options)
        .thenCompose(given -> join(given.get()))
        // Whoever blocks in what follows must not block the bootstrap's thread.
        .whenCompleteAsync(
            (group, failure) -> {
              if (failure != null) {
                result.completeExceptionally(failure);
              } else if (!result.complete(group)) {
                group.closeAsync(); // who asked for it waits no longer
              }
            },
            MAY_BLOCK);
    return result;
  }

  private static CompletableFuture<RankGroup> join(RankGroupOptions groupOptions) {
    RankEnvironment environment = RankEnvironment.fromEnvironment();
    BootstrapOptions.Builder options = BootstrapOptions.builder().timeout(groupOptions.timeout());
    environment.secret().ifPresent(options::secret);
    TcpBootstrap bootstrap =
        TcpBootstrap.create(environment.rank(), environment.nRanks(), options.build());
    return bootstrap
        .initialize(environment)
        // Opening a GPU takes a while, in which the bootstrap's thread has other things to do.
        .handleAsync(
            (ready, failure) -> {
              if (failure == null) {
                int localRank = environment.localRank().orElse(bootstrap.localRank());
                return open(bootstrap, localRank, groupOptions)
                    .withCollectives(groupOptions.collectives());
              }
              return bootstrap
                  .closeAsync()
                  .handle((done, ignored) -> null)
                  .thenCompose(done -> CompletableFuture.<RankGroup>failedFuture(failure));
            },
            MAY_BLOCK)
        .thenCompose(group -> group);
  }

  /**
   * The ranks of a job inside this JVM, by number, each with a device of its own. Waits until they
   * are connected.
   *
   * @param nRanks 1 or more
   * @return the groups; the caller closes each
   */
  public static List<RankGroup> local(int nRanks) {
    return local(nRanks, Deadline.DEFAULT_TIMEOUT);
  }

  /**
   * {@link #local(int)} with a time limit.
   *
   * @param nRanks 1 or more
   * @param timeout of each set-up
   * @return the groups; the caller closes each
   */
  public static List<RankGroup> local(int nRanks, Duration timeout) {
    return local(nRanks, RankGroupOptions.fromEnvironment().withTimeout(timeout));
  }

  /**
   * {@link #local(int)} with options. Ranks share GPUs where there are fewer GPUs than ranks.
   *
   * @param nRanks 1 or more
   * @param options time limit and device
   * @return the groups; the caller closes each
   */
  public static List<RankGroup> local(int nRanks, RankGroupOptions options) {
    List<RankGroup> groups = new ArrayList<>();
    List<LocalBootstrap> bootstraps = LocalBootstrap.group(nRanks);
    try {
      for (LocalBootstrap bootstrap : bootstraps) {
        groups.add(open(bootstrap, bootstrap.rank(), options));
      }
      groups.stream()
          .map(group -> group.withCollectives(options.collectives()))
          .toList()
          .forEach(RankGroup::await);
      return groups;
    } catch (RuntimeException | Error e) {
      groups.forEach(RankGroup::closeNow);
      bootstraps.forEach(LocalBootstrap::closeAsync);
      throw e;
    }
  }

  private CompletableFuture<RankGroup> withCollectives(CollectivesOptions options) {
    CollectivesOptions own = options.withTag(COLLECTIVES_TAG).withTimeout(timeout);
    return CompletableFuture.completedFuture(own)
        // Not called outright: what it may throw ends this group as well.
        .thenCompose(settings -> Collectives.create(communicator, settings))
        .handle(
            (ready, failure) -> {
              if (failure != null) {
                FluxCclException reason = FluxCclException.from(failure);
                // The others need not wait for this rank.
                communicator.abort(reason);
                closeNow();
                throw reason;
              }
              collectives = ready;
              return this;
            });
  }

  private static void await(CompletableFuture<RankGroup> group) {
    try {
      group.join();
    } catch (CompletionException e) {
      throw FluxCclException.from(e);
    }
  }

  /** This rank, from 0. */
  public int rank() {
    return bootstrap.rank();
  }

  /** How many ranks the job has. */
  public int nRanks() {
    return bootstrap.nRanks();
  }

  /** Messages, gathers and barriers between hosts. */
  public Bootstrap bootstrap() {
    return bootstrap;
  }

  /** Where this rank's memory is and its kernels run. */
  public Device device() {
    return device;
  }

  /** Connections and memory between the ranks. */
  public Communicator communicator() {
    return communicator;
  }

  /** What all ranks do together; connected and ready, closed with the group. */
  public Collectives collectives() {
    return collectives;
  }

  /** {@link Collectives#pipeline} of {@link #collectives}. */
  public Pipeline pipeline() {
    return collectives.pipeline();
  }

  /**
   * Leaves the job: waits, a few seconds at most, until the other ranks close too, so that nobody
   * is cut off in the middle; then closes everything but buffers, which are their owner's. A job
   * that has failed is left at once.
   *
   * @return completes when that is done; fails if something could not be closed, when all the rest
   *     is
   */
  public synchronized CompletableFuture<Void> closeAsync() {
    if (closed == null) {
      CompletableFuture<Void> farewell =
          communicator.failure() == null
              ? communicator.inFlight(bootstrap.barrier(Deadline.after(FAREWELL)))
              : CompletableFuture.completedFuture(null);
      // Closing waits for threads and drivers, and the bootstrap's thread must not.
      closed =
          farewell.handle((done, failure) -> null).thenComposeAsync(done -> closeNow(), MAY_BLOCK);
    }
    return closed.copy();
  }

  /** Throws nothing: what can't be closed keeps nothing else from it, and fails the result. */
  private CompletableFuture<Void> closeNow() {
    CompletableFuture<Void> own = new CompletableFuture<>();
    try {
      Closing.all(collectives, communicator, device);
      own.complete(null);
    } catch (Throwable e) {
      own.completeExceptionally(FluxCclException.from(e));
    }
    return CompletableFuture.allOf(bootstrap.closeAsync(), own);
  }

  /**
   * {@link #closeAsync()}, waiting some seconds at most for it. Idempotent.
   *
   * @throws FluxCclException if something could not be closed; all the rest is
   */
  @Override
  public void close() {
    CompletableFuture<Void> done = closeAsync();
    try {
      done.get(CLOSE_SECONDS, TimeUnit.SECONDS);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    } catch (TimeoutException e) {
      LOG.warn(
          "rank {} of {}: closing takes over {} s and goes on", rank(), nRanks(), CLOSE_SECONDS);
    } catch (ExecutionException e) {
      throw FluxCclException.from(e);
    }
  }
}
