package io.fluxccl.collective;

import io.fluxccl.Deadline;
import io.fluxccl.InvalidUsage;
import io.fluxccl.device.host.HostKernel;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.TransportFlags;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.EnumMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import reactor.core.scheduler.Scheduler;
import reactor.core.scheduler.Schedulers;

/**
 * How a {@link Collectives} works. Immutable; {@code with…} methods give a changed copy. Every rank
 * must use the same, but for scheduler and threads.
 *
 * @param transport to use between all ranks; empty: mapped memory inside a host (SHM, CUDA_IPC on
 *     GPUs) and one of the networks between hosts
 * @param networks that may be used between hosts: RDMA devices (IB0 to IB7), rail by rail, where
 *     both hosts have them and they reach the ranks' memory; otherwise ETHERNET. Each rank may
 *     allow others: both ends must
 * @param tag of its connections, to keep several of one communicator apart; lanes take the tags
 *     behind it
 * @param timeout how long each operation may take
 * @param setupTimeout how long opening, and registering a buffer, may take, which a short limit for
 *     operations would cut off; empty: as long as an operation
 * @param threads of a kernel on the host device; 0: one for each core that this rank has to itself,
 *     at least one. GPUs choose for themselves
 * @param scheduler where what follows an operation runs; {@code Schedulers.immediate()}, the
 *     default, is the library's completion thread, fastest, where nothing may block
 * @param checked whether ranks compare what they call before they begin: a mismatch is {@link
 *     InvalidUsage} on all of them; of what two ranks send each other on these two only, and a rank
 *     that waits for them aborts at its time limit. Costs a round of messages a call
 * @param algorithms names of algorithms to be used wherever they can, by collective
 * @param tuning a file that {@code fluxccl perf --tune} wrote
 * @param families algorithms beside those that ServiceLoader finds
 */
public record CollectivesOptions(
    Optional<Transport> transport,
    TransportFlags networks,
    int tag,
    Duration timeout,
    Optional<Duration> setupTimeout,
    int threads,
    Scheduler scheduler,
    boolean checked,
    Map<Collective, String> algorithms,
    Optional<Path> tuning,
    List<AlgorithmFamily> families) {

  /** All networks that there are: IB0 to IB7 and ETHERNET. */
  public static final TransportFlags NETWORKS = TransportFlags.parse("IB,ETHERNET");

  /** The best transport for each peer, tag 0, 30 s, continuations on the completion thread. */
  public static final CollectivesOptions DEFAULT =
      new CollectivesOptions(
          Optional.empty(),
          NETWORKS,
          0,
          Deadline.DEFAULT_TIMEOUT,
          Optional.empty(),
          0,
          Schedulers.immediate(),
          false,
          Map.of(),
          Optional.empty(),
          List.of());

  /**
   * Refuses a time-out that is not positive, a number of threads that no block can have, and what
   * is no network.
   */
  public CollectivesOptions {
    requirePositive("timeout", timeout);
    setupTimeout.ifPresent(limit -> requirePositive("setupTimeout", limit));
    if (threads < 0 || threads > HostKernel.MAX_BLOCK_DIM) {
      throw new InvalidUsage(
          "threads=" + threads + "; give 0 for the default, or up to " + HostKernel.MAX_BLOCK_DIM);
    }
    Set<Transport> strange = new HashSet<>(networks.asSet());
    strange.removeAll(NETWORKS.asSet());
    if (!strange.isEmpty() || networks.asSet().isEmpty()) {
      throw new InvalidUsage("networks=" + networks + "; give some of " + NETWORKS);
    }
    algorithms = Map.copyOf(algorithms);
    families = List.copyOf(families);
  }

  private static void requirePositive(String name, Duration limit) {
    if (limit.isNegative() || limit.isZero()) {
      throw new InvalidUsage(name + "=" + limit + "; give more than zero");
    }
  }

  /** These options with one transport for all peers. */
  public CollectivesOptions withTransport(Transport only) {
    return copy(Optional.of(only), tag, timeout, threads, scheduler, checked);
  }

  /** These options with other networks allowed between hosts. */
  public CollectivesOptions withNetworks(TransportFlags allowed) {
    return new CollectivesOptions(
        transport,
        allowed,
        tag,
        timeout,
        setupTimeout,
        threads,
        scheduler,
        checked,
        algorithms,
        tuning,
        families);
  }

  /** These options with another tag. */
  public CollectivesOptions withTag(int newTag) {
    return copy(transport, newTag, timeout, threads, scheduler, checked);
  }

  /** These options with another time limit. */
  public CollectivesOptions withTimeout(Duration newTimeout) {
    return copy(transport, tag, newTimeout, threads, scheduler, checked);
  }

  /** These options with a time limit of its own for opening and registering. */
  public CollectivesOptions withSetupTimeout(Duration limit) {
    return new CollectivesOptions(
        transport,
        networks,
        tag,
        timeout,
        Optional.of(limit),
        threads,
        scheduler,
        checked,
        algorithms,
        tuning,
        families);
  }

  /** These options with a number of kernel threads. */
  public CollectivesOptions withThreads(int newThreads) {
    return copy(transport, tag, timeout, newThreads, scheduler, checked);
  }

  /** These options with a scheduler for what follows an operation. */
  public CollectivesOptions withScheduler(Scheduler newScheduler) {
    return copy(transport, tag, timeout, threads, newScheduler, checked);
  }

  /** These options with ranks comparing what they call, or not. */
  public CollectivesOptions withChecks(boolean on) {
    return copy(transport, tag, timeout, threads, scheduler, on);
  }

  /** These options with an algorithm to be used for a collective wherever it can. */
  public CollectivesOptions withAlgorithm(Collective collective, String name) {
    Map<Collective, String> more = new EnumMap<>(Collective.class);
    more.putAll(algorithms);
    more.put(collective, name);
    return new CollectivesOptions(
        transport,
        networks,
        tag,
        timeout,
        setupTimeout,
        threads,
        scheduler,
        checked,
        more,
        tuning,
        families);
  }

  /** These options with a tuning file. */
  public CollectivesOptions withTuning(Path file) {
    return new CollectivesOptions(
        transport,
        networks,
        tag,
        timeout,
        setupTimeout,
        threads,
        scheduler,
        checked,
        algorithms,
        Optional.of(file),
        families);
  }

  /** These options with a family of algorithms more. */
  public CollectivesOptions withFamily(AlgorithmFamily family) {
    List<AlgorithmFamily> more = new ArrayList<>(families);
    more.add(family);
    return new CollectivesOptions(
        transport,
        networks,
        tag,
        timeout,
        setupTimeout,
        threads,
        scheduler,
        checked,
        algorithms,
        tuning,
        more);
  }

  private CollectivesOptions copy(
      Optional<Transport> newTransport,
      int newTag,
      Duration newTimeout,
      int newThreads,
      Scheduler newScheduler,
      boolean newChecked) {
    return new CollectivesOptions(
        newTransport,
        networks,
        newTag,
        newTimeout,
        setupTimeout,
        newThreads,
        newScheduler,
        newChecked,
        algorithms,
        tuning,
        families);
  }
}
