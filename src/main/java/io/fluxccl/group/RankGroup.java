// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.group;

import io.fluxccl.Aborted;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.bootstrap.Bootstrap;
import io.fluxccl.bootstrap.Split;
import io.fluxccl.bootstrap.TcpBootstrap;
import io.fluxccl.collective.Collectives;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.communicator.CommunicatorOptions;
import io.fluxccl.concurrent.BlockingTasks;
import io.fluxccl.device.Device;
import io.fluxccl.trace.JobDump;
import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.concurrent.CompletableFuture;
import java.util.function.Supplier;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;
import reactor.core.scheduler.Schedulers;

/**
 * This process's place in a job: its rank, a device, a communicator with all ranks, and the
 * collectives. Thread-safe.
 *
 * <pre>{@code
 * try (RankGroup group = RankGroup.fromEnvironment().join();
 *     DeviceBuffer x = group.device().allocate(4 << 20)) {
 *   group.collectives().allReduce(x, DataType.FLOAT32, ReduceOp.SUM).block();
 * }
 * }</pre>
 */
public final class RankGroup implements Rank, AutoCloseable {
  private static final Duration DUMP_LIMIT = Duration.ofMillis(500);

  private final Bootstrap bootstrap;
  private final Generation generation;
  final JoinOptions options;
  private final Device device;
  private final Communicator communicator;
  final GroupClosing closing;

  final ChildGroups subGroups;

  // The fields below are set before a caller gets the group.
  private Collectives collectives;

  // Null unless all ranks are in this JVM.
  LocalRanks localRanks;

  // Whether another generation follows it.
  boolean renewable;

  private final Shrinking shrinking;

  /**
   * Creates a group that owns the bootstrap, and its device if {@code ownsDevice}. If that throws,
   * the job has failed, and the caller closes the bootstrap.
   */
  RankGroup(
      Bootstrap bootstrap,
      Supplier<Device> device,
      boolean ownsDevice,
      Generation generation,
      JoinOptions options) {
    this.bootstrap = bootstrap;
    this.generation = generation;
    this.options = options;
    this.subGroups = new ChildGroups(this, options.setupTimeout());
    this.closing = new GroupClosing(this, options.collectives().timeout());
    this.shrinking = new Shrinking(this);
    try {
      this.device = device.get();
      closing.ownDevice(ownsDevice);
      this.communicator =
          closing.own(
              Communicator.create(
                  bootstrap,
                  this.device,
                  CommunicatorOptions.DEFAULT.withSetupTimeout(options.setupTimeout())));
    } catch (RuntimeException | Error e) {
      // The other ranks need not wait for this one.
      bootstrap.abort(FluxCclException.from(e).attributedTo(bootstrap.rank()));
      closing.closeWhatItHas();
      throw e;
    }
  }

  /**
   * Joins the job that this process was started for: by {@code fluxccl launch}, mpirun, srun,
   * torchrun, or by FLUXCCL_* variables. Without any of them, a job of one rank; the log warns of
   * that.
   *
   * @return as {@link #join}
   */
  public static CompletableFuture<RankGroup> fromEnvironment() {
    return Joining.begin(JoinOptions::fromEnvironment);
  }

  /**
   * Joins a job. By default a rank gets the GPU of its number on this host, modulo the number of
   * GPUs, or the host's memory and cores if there is no GPU.
   *
   * @param options the job's address, the limits, the device, the collectives
   * @return the group, once every rank has joined; or a failure that names the ranks that are
   *     missing, or the option that is wrong. Continuations may block. If the future was cancelled
   *     or completed by the caller, the group is closed as soon as it has joined
   */
  public static CompletableFuture<RankGroup> join(JoinOptions options) {
    return Joining.begin(() -> options);
  }

  /**
   * Joins a job that recovers from failures: emits a group, and after each failure of it the next
   * one, until a group is closed without a failure. A generation waits until replacements for the
   * dead ranks have joined, or starts smaller, with {@link JoinOptions#leastRanks}. A replacement
   * is any process that joins with the job's address, secret and number of ranks.
   *
   * <p>The device and its buffers live through all generations, until the Flux has ended; all other
   * resources of a group end with it. See docs/reference/generations.md.
   *
   * @param options as for {@link #join}; needs an address, not a unique id
   * @return the groups, cold; each subscription joins. Cancelling closes the current group. Fails
   *     when no generation begins within {@link JoinOptions#joinTimeout}, when this rank's own
   *     device fails, or for a wrong option. Signals arrive on threads that may block
   */
  public static Flux<RankGroup> generations(JoinOptions options) {
    return Generations.of(options);
  }

  /** {@link #local(int, JoinOptions)} with the options of the environment. */
  public static List<RankGroup> local(int nRanks) {
    return local(nRanks, JoinOptions.of(0, 1));
  }

  /**
   * Creates the ranks of a job inside this JVM, by number, each with a device of its own. Waits
   * until they are connected. Ranks share GPUs where there are fewer GPUs than ranks.
   *
   * @param nRanks 1 or more
   * @param options name, limits, device and collectives; their place is not used
   * @return the groups; the caller closes each, or all by {@link #closeAll}
   */
  public static List<RankGroup> local(int nRanks, JoinOptions options) {
    return Joining.local(nRanks, options);
  }

  RankGroup with(Collectives ready) {
    collectives = closing.own(ready);
    return this;
  }

  @Override
  public int rank() {
    return bootstrap.rank();
  }

  @Override
  public int nRanks() {
    return bootstrap.nRanks();
  }

  /**
   * Refuses a job of another size, for example one of a single rank because no launcher was used.
   *
   * @param count how many ranks this program needs
   * @return this group
   * @throws InvalidUsage if the job has another number of ranks; this group stays open
   */
  public RankGroup requireRanks(int count) {
    if (nRanks() != count) {
      throw InvalidUsage.of(
          "this program needs %s ranks, the job has %s; start it by: fluxccl launch -n %s -- ...",
          count, nRanks(), count);
    }
    return this;
  }

  /** Returns the job's name, or an empty text. */
  public String name() {
    return bootstrap.name();
  }

  /** Returns which generation of its job this group is; the first and only one after a join. */
  public Generation generation() {
    return generation;
  }

  /**
   * Returns a signal that processes wait for the next generation while this one has fewer ranks
   * than it may: call {@link #renew} between two of your steps to admit them.
   *
   * @return completes then, on a thread that may block; never in a full or in the only generation
   */
  public Mono<Void> newcomers() {
    return bootstrap instanceof TcpBootstrap ranks
        ? Mono.fromFuture(() -> ranks.newcomers().thenRunAsync(() -> {}, BlockingTasks.EXECUTOR))
        : Mono.never();
  }

  /**
   * Ends this generation on all ranks, so that the next one begins, with the processes that wait
   * for it. Operations in flight fail with {@link Aborted}. Only in a group of {@link
   * #generations}.
   *
   * @param reason for the message
   * @throws InvalidUsage if no generation can follow this group
   */
  public void renew(String reason) {
    if (!renewable) {
      throw new InvalidUsage("renew: only groups of RankGroup.generations have a next one");
    }
    communicator.abort(
        Aborted.of(rank(), "rank %s ends generation %s: %s", rank(), generation.number(), reason));
  }

  /**
   * Returns the rank that has answered no heartbeat for over a second: it is stopped, or can't be
   * reached. This alone does not fail the job; see {@link JoinOptions#livenessTimeout}.
   *
   * @return the silent rank or empty, at once and whenever that changes; completes when this group
   *     fails or is closed. Signals arrive on threads that may block
   */
  public Flux<OptionalInt> silentRank() {
    return bootstrap
        .silence()
        .takeUntilOther(Mono.fromFuture(communicator::failed))
        .publishOn(Schedulers.fromExecutor(BlockingTasks.EXECUTOR));
  }

  /**
   * Requests a report from every rank of the job: the calls in flight, since when, and which ranks
   * wait for which others ({@link JobDump#verdict}). Ranks answer even if their other threads are
   * blocked, also after a failure; a stopped rank is reported as not answering. Does not affect the
   * job.
   *
   * @return the dump, cold, within half a second; signals arrive on the bootstrap's thread
   */
  public Mono<JobDump> dump() {
    return Mono.fromFuture(() -> bootstrap.dump(true, DUMP_LIMIT));
  }

  /** {@link #split(String, int, int)}, with a number for a name. */
  public CompletableFuture<Optional<RankGroup>> split(int color, int key) {
    return split("", color, key);
  }

  /**
   * Forms sub-groups, as MPI_Comm_split does: the ranks of one colour are a group, numbered by key,
   * then by rank. All ranks call it, in the same order among their splits. A sub-group has
   * connections and collectives of its own, and shares this group's device and sockets.
   *
   * <p>The job fails as a whole: when a rank dies or any group aborts, all groups fail. Closing a
   * sub-group closes only itself; closing this group first closes its sub-groups.
   *
   * @param name of the sub-groups, for messages; the same on every rank, as in {@link Split}
   * @param color which group; negative: none
   * @param key the place within the group
   * @return this rank's sub-group, or empty for a negative colour. Fails with {@link InvalidUsage}
   *     on every rank if names differ; with {@link io.fluxccl.Timeout}, naming a rank that did not
   *     call, after {@link JoinOptions#joinTimeout}. Continuations may block
   */
  public CompletableFuture<Optional<RankGroup>> split(String name, int color, int key) {
    List<Split> one = List.of(new Split(name, color, key, 0));
    return subGroups.split(one).thenApply(groups -> groups.get(0));
  }

  /**
   * Forms the groups of a grid, with one exchange for all; as {@link #split(String, int, int)}.
   *
   * @param grid with a place for each rank; the same on every rank
   * @return this rank's group of each dimension, by name, in the grid's order
   * @throws InvalidUsage if the grid has another number of places
   */
  public CompletableFuture<Map<String, RankGroup>> grid(Grid grid) {
    return subGroups.grid(grid);
  }

  /**
   * Forms a group of this group's ranks except some: a {@link #split}. All ranks call it, including
   * those that are left out. The job still fails as a whole, also when one of these dies. To
   * continue without a dead rank, call {@link #shrink}.
   *
   * @param ranks to leave out; the same on every rank
   * @return the sub-group, ranks in their order; empty on a rank that is left out. Fails as a split
   *     does, or with {@link InvalidUsage} if there is no such rank
   */
  public CompletableFuture<Optional<RankGroup>> without(int... ranks) {
    return subGroups.without(ranks);
  }

  /**
   * Continues with the surviving ranks after a failure: closes this group and joins a smaller one,
   * in which ranks keep their order. The new group takes over the device and its buffers; all else
   * is created again. Every surviving rank calls it, before it closes this group. Excluded are dead
   * and silent ranks, and the rank that the failure names, unless it {@linkplain Aborted aborted}.
   * If no rank is excluded, as after an abort, the new group has all ranks.
   *
   * <p>The ranks connect to each other's ports, so no rank is needed at the job's address. If a
   * host does not answer, more than half of the ranks must be on the other hosts, or half with the
   * lowest one; see docs/reference/generations.md. Only for a group of {@link #join}: {@link
   * #generations} emit the next group by themselves, sub-groups must be formed again, and {@link
   * #local} ranks die together.
   *
   * @return the smaller group, which can shrink again. Fails with {@link io.fluxccl.Timeout} after
   *     {@link JoinOptions#joinTimeout}, naming a live rank that did not call it, and may then be
   *     called again. Fails with {@link Aborted} if the others continue without this rank, and with
   *     {@link InvalidUsage} if this group has not failed, or can't shrink. Continuations may block
   */
  public CompletableFuture<RankGroup> shrink() {
    return shrinking.begin();
  }

  RankGroup among(LocalRanks all) {
    localRanks = all.with(this);
    return this;
  }

  @Override
  public Bootstrap bootstrap() {
    return bootstrap;
  }

  @Override
  public Device device() {
    return device;
  }

  @Override
  public Communicator communicator() {
    return communicator;
  }

  @Override
  public Collectives collectives() {
    return collectives;
  }

  /**
   * Leaves the job. First waits for the operations in flight, including cancelled ones, within
   * their time limit. Then waits a few seconds at most until the other ranks close, too. Then
   * closes everything except buffers, which belong to their owners. Does not wait if the job has
   * failed or a rank is silent. A rank that waits for a collective that this one has not enqueued
   * fails within two seconds.
   *
   * @return completes when all is closed; fails if something could not be closed, once the rest is
   *     closed
   */
  public CompletableFuture<Void> closeAsync() {
    closing.begin();
    return closing.closed();
  }

  /**
   * Runs code with this group and then closes it. If the code throws, this group aborts with that
   * exception first, so that the other ranks fail at once with its message instead of waiting.
   *
   * @throws E what the code throws
   * @throws InvalidUsage as {@link #close()}; the code does not run then
   */
  public <E extends Exception> void run(GroupBody<E> body) throws E {
    closing.run(body);
  }

  /**
   * Runs a Mono as {@link #run(GroupBody)} runs code; cancelling closes this group.
   *
   * @return its result after the close, cold
   */
  public <T> Mono<T> run(Mono<T> body) {
    return closing.run(body);
  }

  /**
   * Closes groups at the same time, and waits some seconds at most for all.
   *
   * @throws FluxCclException if something could not be closed; all the rest is
   * @throws InvalidUsage as {@link #close()}
   */
  public static void closeAll(Collection<RankGroup> groups) {
    GroupClosing.closeAll(groups);
  }

  /**
   * {@link #closeAsync()}, waiting some seconds at most. Of {@link #local} ranks, only the last one
   * waits, for all of them: so a plain loop closes them. Idempotent.
   *
   * @throws FluxCclException if something could not be closed; all the rest is
   * @throws InvalidUsage on a thread that runs completions; nothing is closed then
   */
  @Override
  public void close() {
    closing.closeAndWait();
  }
}
