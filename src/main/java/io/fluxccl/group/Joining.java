package io.fluxccl.group;

import io.fluxccl.FluxCclException;
import io.fluxccl.NonblockingFuture;
import io.fluxccl.bootstrap.Bootstrap;
import io.fluxccl.bootstrap.LocalBootstrap;
import io.fluxccl.bootstrap.RankEnvironment;
import io.fluxccl.bootstrap.TcpBootstrap;
import io.fluxccl.concurrent.BlockingTasks;
import io.fluxccl.device.Device;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.function.Supplier;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** The steps by which a process becomes a rank of a group. */
final class Joining {
  private static final Logger LOG = LoggerFactory.getLogger(Joining.class);

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
        // Opening a GPU takes a while, in which the bootstrap's thread has other things to do.
        .thenApplyAsync(connected -> open(bootstrap, place, options), BlockingTasks.EXECUTOR)
        .thenCompose(RankGroup::createCollectives);
  }

  static void warnOf(RankEnvironment place) {
    GroupVariables.ofProcess().unknown().forEach(LOG::warn);
    if (!place.launched()) {
      LOG.warn(
          "no launcher started this process: it is a job of one rank; see fluxccl launch, or set"
              + " FLUXCCL_RANK and FLUXCCL_NRANKS");
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

  private static RankGroup open(Bootstrap bootstrap, RankEnvironment place, JoinOptions options) {
    return open(bootstrap, place.localRank().orElse(bootstrap.localRank()), options);
  }

  static RankGroup open(Bootstrap bootstrap, int localRank, JoinOptions options) {
    Supplier<Device> device = () -> openDevice(bootstrap, localRank, options);
    return new RankGroup(bootstrap, device, true, Generation.ONLY, options);
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
      groups.stream().map(RankGroup::createCollectives).toList().forEach(Joining::await);
      return groups;
    } catch (RuntimeException | Error e) {
      groups.forEach(RankGroup::closeNow);
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
