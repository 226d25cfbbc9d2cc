// SPDX-License-Identifier: Apache-2.0
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
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.function.Consumer;
import reactor.core.scheduler.Scheduler;
import reactor.core.scheduler.Schedulers;

/**
 * Options of a {@link Collectives}. Immutable; {@code with…} methods return a changed copy. Every
 * rank must use the same values, except for scheduler, threads and abortOnCancel.
 *
 * @param transport to use between all ranks; empty: mapped memory inside a host (SHM, CUDA_IPC on
 *     GPUs) and one of the networks between hosts
 * @param networks that may be used between hosts: RDMA devices (IB0 to IB7), rail by rail, where
 *     both hosts have them and they reach the ranks' memory; otherwise ETHERNET. Ranks may allow
 *     different ones; two ranks use a network that both allow
 * @param tag of its connections, different for each {@code Collectives} of a communicator; its
 *     lanes take the tags after it
 * @param timeout how long each operation may take; {@link Deadline#NO_LIMIT}: for ever
 * @param setupTimeout how long opening, and registering a buffer, may take, which a short limit for
 *     operations would cut off; empty: as long as an operation
 * @param threads of a kernel on the host device; 0: one for each core that this rank has to itself,
 *     at least one. GPUs choose for themselves
 * @param scheduler runs the callbacks after an operation; {@code Schedulers.immediate()}, the
 *     default, is the library's completion thread, fastest, where nothing may block
 * @param checked whether ranks compare their calls before these begin: a mismatch is {@link
 *     InvalidUsage} on all ranks. A mismatch of a send-receive is one on its two ranks only, and a
 *     rank that waits for them aborts at its time limit. Costs a round of messages a call
 * @param checksums whether messages of ETHERNET have checksums of their own, so that bytes that the
 *     network changed are sent again. One rank that asks for them is enough for its connections
 * @param algorithms names of algorithms to be used wherever they can, by collective
 * @param tuning a file that {@code fluxccl perf --tune} wrote
 * @param families algorithms in addition to those that ServiceLoader finds
 * @param maxBlocks the most blocks of each kernel on a GPU, 1 or more; 0: as many as the GPU runs
 *     at once. A block takes at most one multiprocessor, so a lane never keeps more of them busy
 *     with one kernel. Fewer blocks make larger operations slower
 * @param preferCopyEngines whether algorithms that move data by copy engines are chosen wherever
 *     they support the call, however small it is: they leave the multiprocessors to other kernels.
 *     Algorithms that the options or the tuning file name take precedence
 * @param reproducible whether a sum or product depends on the ranks' values alone, also between
 *     hosts: algorithms that add in another order than that of the ranks are not chosen. One that
 *     adds in an order of its own, the same in every call (hierarchical, for all-reduces), is used
 *     if it is named. Within a host all of the library's algorithms keep that anyway
 * @param abortOnCancel whether cancelling an operation in flight aborts the communicator on every
 *     rank; otherwise the operation continues on every rank, without the subscriber that cancelled
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
    boolean checksums,
    Map<Collective, String> algorithms,
    Optional<Path> tuning,
    List<AlgorithmFamily> families,
    int maxBlocks,
    boolean preferCopyEngines,
    boolean reproducible,
    boolean abortOnCancel) {

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
          false,
          Map.of(),
          Optional.empty(),
          List.of(),
          0,
          false,
          false,
          false);

  /**
   * Refuses a timeout that is not positive, a number of threads that no block can have, a negative
   * number of blocks, and a transport that is no network.
   */
  public CollectivesOptions {
    requirePositive("timeout", timeout);
    setupTimeout.ifPresent(limit -> requirePositive("setupTimeout", limit));
    if (threads < 0 || threads > HostKernel.MAX_BLOCK_DIM) {
      throw InvalidUsage.of(
          "threads=%d; give 0 for the default, or up to %d", threads, HostKernel.MAX_BLOCK_DIM);
    }
    Set<Transport> given = networks.asSet();
    if (given.isEmpty() || !NETWORKS.asSet().containsAll(given)) {
      throw new InvalidUsage("networks=" + networks + "; give some of " + NETWORKS);
    }
    if (maxBlocks < 0) {
      throw InvalidUsage.of("maxBlocks=%d; give 0 for no limit, or 1 or more", maxBlocks);
    }
    algorithms = Map.copyOf(algorithms);
    families = List.copyOf(families);
  }

  static void requirePositive(String name, Duration limit) {
    if (limit.isNegative() || limit.isZero()) {
      throw new InvalidUsage(name + "=" + limit + "; give more than zero");
    }
  }

  /** Returns these options with one transport for all peers. */
  public CollectivesOptions withTransport(Transport only) {
    return with(fields -> fields.transport = Optional.of(only));
  }

  /** Returns these options with other networks allowed between hosts. */
  public CollectivesOptions withNetworks(TransportFlags allowed) {
    return with(fields -> fields.networks = allowed);
  }

  /** Returns these options with another tag. */
  public CollectivesOptions withTag(int newTag) {
    return with(fields -> fields.tag = newTag);
  }

  /** Returns these options with another time limit. */
  public CollectivesOptions withTimeout(Duration newTimeout) {
    return with(fields -> fields.timeout = newTimeout);
  }

  /** Returns these options with a separate time limit for opening and registering. */
  public CollectivesOptions withSetupTimeout(Duration limit) {
    return with(fields -> fields.setupTimeout = Optional.of(limit));
  }

  /** Returns these options with a number of kernel threads. */
  public CollectivesOptions withThreads(int newThreads) {
    return with(fields -> fields.threads = newThreads);
  }

  /** Returns these options with a scheduler for continuations of operations. */
  public CollectivesOptions withScheduler(Scheduler newScheduler) {
    return with(fields -> fields.scheduler = newScheduler);
  }

  /** Returns these options with or without the comparison of calls between ranks. */
  public CollectivesOptions withChecks(boolean on) {
    return with(fields -> fields.checked = on);
  }

  /** Returns these options with or without checksums of messages of ETHERNET. */
  public CollectivesOptions withChecksums(boolean on) {
    return with(fields -> fields.checksums = on);
  }

  /** Returns these options with an algorithm for a collective, used wherever it is supported. */
  public CollectivesOptions withAlgorithm(Collective collective, String name) {
    return with(fields -> fields.algorithms.put(collective, name));
  }

  /** Returns these options with a tuning file. */
  public CollectivesOptions withTuning(Path file) {
    return with(fields -> fields.tuning = Optional.of(file));
  }

  /** Returns these options with one more family of algorithms. */
  public CollectivesOptions withFamily(AlgorithmFamily family) {
    return with(fields -> fields.families.add(family));
  }

  /** Returns these options with a limit for the blocks of each kernel on a GPU; 0: none. */
  public CollectivesOptions withMaxBlocks(int most) {
    return with(fields -> fields.maxBlocks = most);
  }

  /** Returns these options with or without a preference for algorithms that use copy engines. */
  public CollectivesOptions withCopyEngines(boolean preferred) {
    return with(fields -> fields.preferCopyEngines = preferred);
  }

  /** Returns these options with or without the promise that sums add in one order everywhere. */
  public CollectivesOptions withReproducible(boolean on) {
    return with(fields -> fields.reproducible = on);
  }

  /** Returns these options with or without an abort when an operation in flight is cancelled. */
  public CollectivesOptions withAbortOnCancel(boolean on) {
    return with(fields -> fields.abortOnCancel = on);
  }

  private CollectivesOptions with(Consumer<Fields> change) {
    Fields fields = new Fields(this);
    change.accept(fields);
    return fields.toOptions();
  }

  /** A copy of the options' fields that can be changed. */
  private static final class Fields {
    private Optional<Transport> transport;
    private TransportFlags networks;
    private int tag;
    private Duration timeout;
    private Optional<Duration> setupTimeout;
    private int threads;
    private Scheduler scheduler;
    private boolean checked;
    private boolean checksums;
    private final Map<Collective, String> algorithms = new EnumMap<>(Collective.class);
    private Optional<Path> tuning;
    private final List<AlgorithmFamily> families;
    private int maxBlocks;
    private boolean preferCopyEngines;
    private boolean reproducible;
    private boolean abortOnCancel;

    Fields(CollectivesOptions from) {
      this.transport = from.transport;
      this.networks = from.networks;
      this.tag = from.tag;
      this.timeout = from.timeout;
      this.setupTimeout = from.setupTimeout;
      this.threads = from.threads;
      this.scheduler = from.scheduler;
      this.checked = from.checked;
      this.checksums = from.checksums;
      this.algorithms.putAll(from.algorithms);
      this.tuning = from.tuning;
      this.families = new ArrayList<>(from.families);
      this.maxBlocks = from.maxBlocks;
      this.preferCopyEngines = from.preferCopyEngines;
      this.reproducible = from.reproducible;
      this.abortOnCancel = from.abortOnCancel;
    }

    CollectivesOptions toOptions() {
      return new CollectivesOptions(
          transport,
          networks,
          tag,
          timeout,
          setupTimeout,
          threads,
          scheduler,
          checked,
          checksums,
          algorithms,
          tuning,
          families,
          maxBlocks,
          preferCopyEngines,
          reproducible,
          abortOnCancel);
    }
  }
}
