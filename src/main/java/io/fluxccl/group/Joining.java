// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.group;

import io.fluxccl.Aborted;
import io.fluxccl.DeviceFailure;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.NonblockingFuture;
import io.fluxccl.bootstrap.Bootstrap;
import io.fluxccl.bootstrap.LocalBootstrap;
import io.fluxccl.bootstrap.Membership;
import io.fluxccl.bootstrap.RankEnvironment;
import io.fluxccl.bootstrap.TcpBootstrap;
import io.fluxccl.collective.Collectives;
import io.fluxccl.concurrent.BlockingTasks;
import io.fluxccl.concurrent.RankLog;
import io.fluxccl.device.Device;
import io.fluxccl.settings.Settings;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.function.Function;
import java.util.function.Supplier;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** The steps by which a process becomes a rank of a group. */
final class Joining {
  private static final Logger LOG = LoggerFactory.getLogger(Joining.class);

  /** Tags of the group's own connections begin here, out of the way of users' tags. */
  private static final int COLLECTIVES_TAG = 1 << 20;

  private Joining() {}

  static CompletableFuture<RankGroup> begin(Supplier<JoinOptions> options) {
    CompletableFuture<RankGroup> result = NonblockingFuture.create();
    // A wrong variable of the environment fails the future, as everything else does.
    CompletableFuture.completedFuture(options)
        .thenCompose(given -> join(given.get()))
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

  private static CompletableFuture<RankGroup> join(JoinOptions options) {
    warnOf(options.place());
    RankEnvironment place = options.place();
    TcpBootstrap bootstrap =
        TcpBootstrap.create(place.rank(), place.nRanks(), options.bootstrapOptions());
    return bootstrap
        .initialize(place)
        .exceptionallyCompose(failure -> close(bootstrap, failure))
        // Opening a GPU takes a while, and must not block the bootstrap's thread.
        .thenApplyAsync(connected -> open(bootstrap, place, options), BlockingTasks.EXECUTOR)
        .thenCompose(Joining::createCollectives);
  }

  /**
   * Joins a generation that a rendezvous has formed.
   *
   * @param cause why the previous generation has ended, or null
   * @param device opens the device, or returns the one that this process has; the group does not
   *     own it
   */
  static CompletableFuture<RankGroup> join(
      Membership place,
      FluxCclException cause,
      Function<TcpBootstrap, Device> device,
      JoinOptions options) {
    Generation generation =
        new Generation(place.generation(), place.previousRanks(), Optional.ofNullable(cause));
    TcpBootstrap bootstrap =
        TcpBootstrap.create(place.rank(), place.nRanks(), options.bootstrapOptions());
    return bootstrap
        .initialize(place)
        .exceptionallyCompose(failure -> close(bootstrap, failure))
        .thenApplyAsync(
            connected ->
                RankLog.of(
                    bootstrap.rank(),
                    () ->
                        new RankGroup(
                            bootstrap, () -> device.apply(bootstrap), false, generation, options)),
            BlockingTasks.EXECUTOR)
        .thenCompose(Joining::createCollectives);
  }

  /**
   * Returns the rank for which the next generation does not wait after a failure: the one that the
   * failure names, unless that rank has only aborted.
   *
   * @param cause of the failure, or null
   * @param self this rank
   */
  static OptionalInt lostRank(FluxCclException cause, int self) {
    boolean isOther =
        cause != null && cause.rank() >= 0 && cause.rank() != self && !(cause instanceof Aborted);
    return isOther ? OptionalInt.of(cause.rank()) : OptionalInt.empty();
  }

  /** Returns whether another generation may succeed after one that failed in its set-up. */
  static boolean mayBeHealed(FluxCclException reason) {
    // The driver's status is known only of this rank's device.
    boolean isOfOwnDevice = reason instanceof DeviceFailure failure && failure.status() != 0;
    return !(reason instanceof InvalidUsage) && !isOfOwnDevice;
  }

  static void warnOf(RankEnvironment place) {
    Settings.ofProcess().unknown().forEach(LOG::warn);
    if (!place.launched()) {
      LOG.warn(
          "no launcher started this process: it is a job of one rank; see fluxccl launch, mpirun and"
              + " srun, or set FLUXCCL_RANK and FLUXCCL_NRANKS (in an indexed Job of Kubernetes"
              + " FLUXCCL_NRANKS alone)");
    }
  }

  static CompletableFuture<Void> close(TcpBootstrap bootstrap, Throwable failure) {
    return bootstrap
        .closeAsync()
        .handle((closed, ignored) -> null)
        .thenCompose(
            closed ->
                CompletableFuture.failedFuture(
                    FluxCclException.from(failure).inJob(bootstrap.name())));
  }

  static CompletableFuture<RankGroup> createCollectives(RankGroup group) {
    return CompletableFuture.completedFuture(group.options.collectivesWithTag(COLLECTIVES_TAG))
        // Not called directly: an exception that it throws closes the group as well.
        .thenCompose(
            settings ->
                RankLog.of(group.rank(), () -> Collectives.create(group.communicator(), settings)))
        .handle(
            (ready, failure) -> {
              if (failure != null) {
                FluxCclException reason = FluxCclException.from(failure).inJob(group.name());
                // The other ranks need not wait for this one.
                group.communicator().abort(reason);
                group.closing.closeNow();
                throw reason;
              }
              return group.with(ready);
            });
  }

  private static RankGroup open(Bootstrap bootstrap, RankEnvironment place, JoinOptions options) {
    return open(bootstrap, place.localRank().orElse(bootstrap.localRank()), options);
  }

  static RankGroup open(Bootstrap bootstrap, int localRank, JoinOptions options) {
    Supplier<Device> device = () -> openDevice(bootstrap, localRank, options);
    return RankLog.of(
        bootstrap.rank(), () -> new RankGroup(bootstrap, device, true, Generation.ONLY, options));
  }

  /** Creates the ranks of a job inside this JVM; see {@link RankGroup#local}. */
  static List<RankGroup> local(int nRanks, JoinOptions options) {
    List<RankGroup> groups = new ArrayList<>();
    List<LocalBootstrap> bootstraps = LocalBootstrap.group(options.name(), nRanks);
    LocalRanks ranks = new LocalRanks(nRanks);
    try {
      for (LocalBootstrap bootstrap : bootstraps) {
        groups.add(open(bootstrap, bootstrap.rank(), options).among(ranks));
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

  static Device openDevice(Bootstrap bootstrap, int localRank, JoinOptions options) {
    String name = (options.name().isEmpty() ? "fluxccl" : options.name()) + "-" + bootstrap.rank();
    return options.device().open(localRank, name);
  }
}
