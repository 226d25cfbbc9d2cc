// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.group;

import io.fluxccl.Deadline;
import io.fluxccl.DeviceFailure;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.NonblockingFuture;
import io.fluxccl.bootstrap.Bootstrap;
import io.fluxccl.bootstrap.LocalBootstrap;
import io.fluxccl.bootstrap.RankEnvironment;
import io.fluxccl.bootstrap.TcpBootstrap;
import io.fluxccl.collective.Collectives;
import io.fluxccl.concurrent.BlockingTasks;
import io.fluxccl.concurrent.RankLog;
import io.fluxccl.device.Device;
import io.fluxccl.settings.Settings;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.function.BiFunction;
import java.util.function.Function;
import java.util.function.Supplier;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Joins one group of a job: a bootstrap joins the other ranks, and then the group opens its
 * communicator and its collectives. If that fails after the first group of the job, the process
 * joins the other ranks again, within the same limit.
 */
final class Joining {
  private static final Logger LOG = LoggerFactory.getLogger(Joining.class);

  /** Tags of the group's own connections begin here, out of the way of users' tags. */
  private static final int COLLECTIVES_TAG = 1 << 20;

  private final JoinOptions options;
  private final BiFunction<TcpBootstrap, Duration, CompletableFuture<TcpBootstrap>> search;
  private final Function<TcpBootstrap, Device> device;
  private final boolean isFirst;

  /** The limit of all set-ups; null before the first one. */
  private Deadline deadline;

  /**
   * @param search joins the other ranks, given the bootstrap that failed and a limit
   * @param device opens the device, or returns the one that this process has
   * @param isFirst whether the group is the first one of its job, which then owns its device
   */
  Joining(
      JoinOptions options,
      BiFunction<TcpBootstrap, Duration, CompletableFuture<TcpBootstrap>> search,
      Function<TcpBootstrap, Device> device,
      boolean isFirst) {
    this.options = options;
    this.search = search;
    this.device = device;
    this.isFirst = isFirst;
  }

  /** Joins the first group of a job, which owns its device. */
  static CompletableFuture<RankGroup> begin(Supplier<JoinOptions> options) {
    CompletableFuture<RankGroup> result = NonblockingFuture.create();
    // A wrong variable of the environment fails the future, as everything else does.
    CompletableFuture.supplyAsync(options, BlockingTasks.EXECUTOR)
        .thenCompose(Joining::first)
        // Continuations that block must not block the bootstrap's thread.
        .whenCompleteAsync(
            (group, failure) -> complete(result, group, failure), BlockingTasks.EXECUTOR);
    return result;
  }

  private static void complete(
      CompletableFuture<RankGroup> result, RankGroup group, Throwable failure) {
    if (failure != null) {
      result.completeExceptionally(failure);
    } else if (!result.complete(group)) {
      group.closeAsync(); // the caller waits no longer
    }
  }

  private static CompletableFuture<RankGroup> first(JoinOptions options) {
    warnOf(options.place());
    return new Joining(
            options,
            (none, limit) -> connect(options),
            connected -> openDevice(connected, options),
            true)
        .join(null, null);
  }

  private static CompletableFuture<TcpBootstrap> connect(JoinOptions options) {
    RankEnvironment place = options.place();
    TcpBootstrap bootstrap =
        TcpBootstrap.create(place.rank(), place.nRanks(), options.bootstrapOptions());
    return bootstrap
        .initialize(place)
        .thenApply(connected -> bootstrap)
        .exceptionallyCompose(
            failure ->
                failAfter(
                    bootstrap.closeAsync(),
                    FluxCclException.from(failure).inJob(bootstrap.name())));
  }

  private static <T> CompletableFuture<T> failAfter(
      CompletableFuture<Void> closing, FluxCclException reason) {
    return closing
        .handle((closed, ignored) -> null)
        .thenCompose(closed -> CompletableFuture.failedFuture(reason));
  }

  /**
   * Joins the group.
   *
   * @param failed the bootstrap of the group before, or null
   * @param cause why that group has ended, or null
   */
  CompletableFuture<RankGroup> join(TcpBootstrap failed, FluxCclException cause) {
    Duration limit = deadline == null ? options.joinTimeout() : deadline.remaining();
    return search
        .apply(failed, limit)
        // Opening a device takes a while, and must not block the bootstrap's thread.
        .thenComposeAsync(formed -> setUp(formed, cause), BlockingTasks.EXECUTOR);
  }

  private CompletableFuture<RankGroup> setUp(TcpBootstrap formed, FluxCclException cause) {
    if (deadline == null) {
      deadline = Deadline.after(options.joinTimeout());
    }
    Generation generation =
        isFirst
            ? Generation.ONLY
            : new Generation(
                formed.generation(), formed.previousRanks(), Optional.ofNullable(cause));
    RankGroup group;
    try {
      group = open(formed, () -> device.apply(formed), isFirst, generation, options);
    } catch (RuntimeException | Error e) {
      return again(formed, e, formed::closeAsync);
    }
    return createCollectives(group)
        .exceptionallyCompose(failure -> again(formed, failure, group.closing::closeNow));
  }

  /** Joins again. Closes the failed group after that: the last bootstrap of a job ends it. */
  private CompletableFuture<RankGroup> again(
      TcpBootstrap failed, Throwable failure, Supplier<CompletableFuture<Void>> closing) {
    FluxCclException reason = FluxCclException.from(failure).inJob(failed.name());
    if (isFirst || deadline.expired() || !mayBeHealed(reason)) {
      return failAfter(closing.get(), reason);
    }
    LOG.info(
        "generation {} failed while it was set up: {}", failed.generation(), reason.getMessage());
    CompletableFuture<RankGroup> next = join(failed, reason);
    return closing.get().handle((closed, trouble) -> null).thenCompose(closed -> next);
  }

  /** Returns whether another generation may succeed after one that failed in its set-up. */
  private static boolean mayBeHealed(FluxCclException reason) {
    // The driver's status is known only of this rank's device.
    boolean isOfOwnDevice = reason instanceof DeviceFailure failure && failure.status() != 0;
    return !(reason instanceof InvalidUsage) && !isOfOwnDevice;
  }

  static void warnOf(RankEnvironment place) {
    Settings.ofProcess().unknown().forEach(LOG::warn);
    if (!place.launched()) {
      LOG.warn(
          "no launcher started this process: it is a job of one rank; see fluxccl launch, mpirun"
              + " and srun, or set FLUXCCL_RANK and FLUXCCL_NRANKS (in an indexed Job of Kubernetes"
              + " FLUXCCL_NRANKS alone)");
    }
  }

  /** Completes the set-up of a group. If that fails, the caller closes the group. */
  static CompletableFuture<RankGroup> createCollectives(RankGroup group) {
    return CompletableFuture.completedFuture(group.options.collectivesWithTag(COLLECTIVES_TAG))
        // Not called directly: an exception that it throws ends the group as well.
        .thenCompose(
            settings ->
                RankLog.of(group.rank(), () -> Collectives.create(group.communicator(), settings)))
        .handle(
            (ready, failure) -> {
              if (failure != null) {
                FluxCclException reason = FluxCclException.from(failure).inJob(group.name());
                // The other ranks need not wait for this one.
                group.communicator().abort(reason);
                throw reason;
              }
              return group.with(ready);
            });
  }

  private static RankGroup open(
      Bootstrap bootstrap,
      Supplier<Device> device,
      boolean ownsDevice,
      Generation generation,
      JoinOptions options) {
    return RankLog.of(
        bootstrap.rank(), () -> new RankGroup(bootstrap, device, ownsDevice, generation, options));
  }

  /** Opens the device of a process that has this rank. */
  static Device openDevice(TcpBootstrap bootstrap, JoinOptions options) {
    return openDevice(
        bootstrap, options.place().localRank().orElse(bootstrap.localRank()), options);
  }

  private static Device openDevice(Bootstrap bootstrap, int localRank, JoinOptions options) {
    String name = (options.name().isEmpty() ? "fluxccl" : options.name()) + "-" + bootstrap.rank();
    return options.device().open(localRank, name);
  }

  /** Creates the ranks of a job inside this JVM; see {@link RankGroup#local}. */
  static List<RankGroup> local(int nRanks, JoinOptions options) {
    List<RankGroup> groups = new ArrayList<>();
    List<LocalBootstrap> bootstraps = LocalBootstrap.group(options.name(), nRanks);
    LocalRanks ranks = new LocalRanks(nRanks);
    try {
      for (LocalBootstrap bootstrap : bootstraps) {
        Supplier<Device> device = () -> openDevice(bootstrap, bootstrap.rank(), options);
        groups.add(open(bootstrap, device, true, Generation.ONLY, options).among(ranks));
      }
      groups.stream().map(Joining::createCollectives).toList().forEach(Joining::await);
      return groups;
    } catch (RuntimeException | Error e) {
      groups.forEach(group -> group.closing.closeNow());
      bootstraps.forEach(LocalBootstrap::closeAsync);
      throw e;
    }
  }

  private static void await(CompletableFuture<RankGroup> group) {
    try {
      group.join();
    } catch (CompletionException e) {
      throw FluxCclException.from(e);
    }
  }
}
