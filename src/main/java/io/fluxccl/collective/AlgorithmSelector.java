// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.ReduceOp;
import io.fluxccl.collective.LaneDescription.DeviceDescription;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.trace.FlightRecorder;
import java.util.ArrayList;
import java.util.EnumMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.stream.Collectors;

/**
 * The algorithms of a lane: checks a call, chooses its algorithm, and enqueues it. It chooses the
 * algorithm that the user named, if that supports the call, or else that of the tuning file.
 * Otherwise it chooses the one with the least estimate, among those that use copy engines if these
 * are preferred. All ranks choose the same, because their inputs are equal. An algorithm that needs
 * NVLink is refused if the GPUs have none.
 *
 * <p>{@link #check} and {@link #enqueue} are for {@link Step}s, under the lane's lock; any thread
 * may call the other methods.
 */
final class AlgorithmSelector {
  private static final String SAYING_NVLINK =
      "; if NVLink connects them, although their processes don't see each other's GPU, set "
          + DeviceDescription.LINK_VARIABLE
          + "=nvlink on all ranks";

  private final Communicator communicator;
  private final RankTopology topology;
  private final Registrations registrations;
  private final boolean preferCopyEngines;
  private final List<CollectiveAlgorithm> algorithms = new ArrayList<>();

  // Exact algorithms, selected by default: sized if the host knows the sizes, routed if the kernel
  // reads them. Fused calls have one more than the sized.
  private final List<CollectiveAlgorithm> sized;
  private final List<CollectiveAlgorithm> routed;
  private final List<CollectiveAlgorithm> fused;

  private final List<AlgorithmSet> sets;
  private final boolean reproducible;
  private final Map<Collective, List<Tuning.Rule>> rules = new EnumMap<>(Collective.class);

  /** The numbers of the algorithms in the flight recorder. */
  private int[] numbers = {};

  /** The number of the last algorithm that was enqueued; under the lane's lock. */
  private int lastUsed;

  // Replaced as a whole.
  private volatile Map<Collective, String> chosen;

  /**
   * Creates the selector of a lane.
   *
   * @throws InvalidUsage if the options or the tuning file name an algorithm that does not exist
   */
  AlgorithmSelector(
      PeerConnections peers,
      Registrations registrations,
      List<AlgorithmSet> sets,
      CollectivesOptions options,
      Tuning tuning) {
    this.communicator = peers.communicator();
    this.topology = peers.topology();
    this.registrations = registrations;
    this.preferCopyEngines = options.preferCopyEngines();
    this.sets = List.copyOf(sets);
    sets.forEach(set -> algorithms.addAll(set.algorithms()));
    this.sized = exact(false);
    this.routed = exact(true);
    algorithms.add(new SeparateEpilogue(this, topology, peers.threads()));
    this.fused = exact(false);
    this.reproducible = options.reproducible();
    this.chosen = options.algorithms();
    chosen.forEach((collective, name) -> require(collective, name, ""));
    for (Collective collective : Collective.values()) {
      List<Tuning.Rule> here = tuning.rulesFor(topology, collective);
      here.forEach(rule -> require(collective, rule.algorithm(), tuning.origin(rule)));
      if (!here.isEmpty()) {
        rules.put(collective, here);
      }
    }
  }

  private List<CollectiveAlgorithm> exact(boolean ofRoutings) {
    return algorithms.stream()
        .filter(each -> each.isExact() && each.isRouted() == ofRoutings && isSafe(each))
        .toList();
  }

  /** Returns whether the GPUs' links keep what an algorithm relies on. */
  private boolean isSafe(CollectiveAlgorithm algorithm) {
    return topology.hasNvlink() || !algorithm.needsNvlink();
  }

  /**
   * Refuses an invalid call, and one that no algorithm supports.
   *
   * @param first whether the call is enqueued next: then enqueueing finds soon enough that no
   *     algorithm supports it
   */
  void check(CollectiveCall call, boolean first) {
    check(call, communicator.device(), topology);
    if (!first && needsAlgorithm(call)) {
      choose(registrations.bind(call));
    }
  }

  /** Returns what kernels have found wrong with values that they read from the device, or null. */
  FluxCclException fault() {
    for (int i = 0; i < sets.size(); i++) {
      FluxCclException fault = sets.get(i).fault();
      if (fault != null) {
        return fault;
      }
    }
    return null;
  }

  /** Gives each algorithm its number in a flight recorder. Called once, before the first call. */
  void number(FlightRecorder recorder) {
    numbers = algorithms.stream().mapToInt(each -> recorder.number(each.name())).toArray();
  }

  /** Returns the number of the algorithm used since the last call, or 0. Under the lane's lock. */
  int takeLastUsed() {
    int number = lastUsed;
    lastUsed = 0;
    return number;
  }

  /** Enqueues a call that was checked. */
  void enqueue(CollectiveCall call, DeviceStream on) {
    enqueue(call, CallSignature.of(call), on);
  }

  /** {@link #enqueue(CollectiveCall, DeviceStream)} with the signature of the call. */
  void enqueue(CollectiveCall call, int signature, DeviceStream on) {
    if (needsAlgorithm(call)) {
      enqueueChosen(call, signature, on);
    } else if (topology.nRanks() == 1) {
      copyToOutput(call, on);
    }
  }

  /**
   * Enqueues a call, by the algorithm that is chosen for it.
   *
   * @param signature of the call, or of the call that contains it
   */
  void enqueueChosen(CollectiveCall call, int signature, DeviceStream on) {
    BoundCall bound = registrations.bind(call, signature);
    enqueue(choose(bound), bound, on);
  }

  /** Returns the estimate of the algorithm that is chosen for a call; 0 of a single rank. */
  double estimate(CollectiveCall call) {
    BoundCall bound = registrations.bind(call);
    return topology.nRanks() == 1 ? 0 : choose(bound).estimate(bound);
  }

  /**
   * Aborts if the algorithm fails: peers continue with this call, so the ranks' orders would
   * differ.
   */
  private void enqueue(CollectiveAlgorithm algorithm, BoundCall call, DeviceStream on) {
    int index = algorithms.indexOf(algorithm);
    lastUsed = index < numbers.length ? numbers[index] : 0;
    try {
      algorithm.enqueue(on, call);
    } catch (RuntimeException | Error e) {
      communicator.abort(FluxCclException.from(e));
      throw e;
    }
  }

  /** Does a collective of one rank: a copy, unless it is in place. */
  private static void copyToOutput(CollectiveCall call, DeviceStream stream) {
    long bytes = call.outputBytes(0, 1);
    boolean receivesItself =
        call.collective() != Collective.SEND_RECEIVE
            || call.source() == 0 && call.destination() == 0;
    if (bytes > 0 && receivesItself && !call.isInPlace(0, 1)) {
      stream.copy(call.output(), 0, call.input(), 0, bytes);
    }
  }

  /** Returns false for a call that has nothing to do, on any rank. */
  private boolean needsAlgorithm(CollectiveCall call) {
    boolean hasWork = call.count() > 0 || !call.collective().isUniform();
    // An epilogue and a routing are to be done by a single rank, too.
    return call instanceof RoutedCall
        || hasWork && (topology.nRanks() > 1 || call instanceof FusedAllReduce);
  }

  private void require(Collective collective, String name, String origin) {
    CollectiveAlgorithm named = byName(name);
    // A job of one rank has no algorithms, and needs none.
    if (topology.nRanks() > 1 && named == null) {
      throw InvalidUsage.of(
          "%salgorithm=%s for %s is none of %s", origin, name, collective.label(), names());
    }
    if (named != null && !isSafe(named)) {
      throw InvalidUsage.of(
          "%salgorithm=%s for %s needs NVLink, which keeps lines of 128 bytes whole: %s. Name"
              + " another algorithm, or none%s",
          origin, name, collective.label(), topology.withoutNvlink(), SAYING_NVLINK);
    }
  }

  private String names() {
    return algorithms.stream().map(CollectiveAlgorithm::name).collect(Collectors.joining(", "));
  }

  private CollectiveAlgorithm byName(String name) {
    for (int i = 0; i < algorithms.size(); i++) {
      if (algorithms.get(i).name().equals(name)) {
        return algorithms.get(i);
      }
    }
    return null;
  }

  /**
   * Uses an algorithm from now on, wherever it can.
   *
   * @param name of it; empty: chooses by itself again
   * @throws InvalidUsage if there is none of that name
   */
  synchronized void prefer(Collective collective, Optional<String> name) {
    name.ifPresent(wanted -> require(collective, wanted, ""));
    Map<Collective, String> changed = new EnumMap<>(Collective.class);
    changed.putAll(chosen);
    name.ifPresentOrElse(
        wanted -> changed.put(collective, wanted), () -> changed.remove(collective));
    chosen = changed;
  }

  /** Returns the names of the exact algorithms that support a call, in the same order anywhere. */
  List<String> namesFor(CollectiveCall call) {
    BoundCall bound = registrations.bind(call);
    return algorithms.stream()
        .filter(each -> each.isExact() && isSafe(each) && supports(each, bound))
        .map(CollectiveAlgorithm::name)
        .toList();
  }

  /** Returns the name of the algorithm that a call would take now. */
  String nameFor(CollectiveCall call) {
    return choose(registrations.bind(call)).name();
  }

  private static boolean supports(CollectiveAlgorithm algorithm, BoundCall call) {
    return algorithm.isRouted() == call.call() instanceof RoutedCall && algorithm.supports(call);
  }

  /** Returns the algorithm for a call, or throws {@link InvalidUsage} if none supports it. */
  private CollectiveAlgorithm choose(BoundCall call) {
    String wanted = chosen.get(call.call().collective());
    CollectiveAlgorithm named = wanted == null ? null : byName(wanted);
    if (named != null && supports(named, call) && isAllowed(named, call, true)) {
      return named;
    }
    List<Tuning.Rule> here = rules.get(call.call().collective());
    Tuning.Rule rule = here == null ? null : Tuning.find(here, call);
    CollectiveAlgorithm tuned = rule == null ? null : byName(rule.algorithm());
    if (tuned != null
        && tuned.isExact()
        && supports(tuned, call)
        && isAllowed(tuned, call, false)) {
      return tuned;
    }
    CollectiveAlgorithm best = preferCopyEngines ? fastest(call, true) : null;
    best = best == null ? fastest(call, false) : best;
    if (best == null) {
      throw unsupported(call);
    }
    return best;
  }

  private InvalidUsage unsupported(BoundCall call) {
    String limits = "";
    if (call.call() instanceof RoutedCall) {
      limits =
          ". It works within a host only: among 2 to 16 ranks on GPUs with NVLink between them, or 2"
              + " or more on the host device, that map each other's memory";
      if (!topology.hasNvlink()) {
        limits += "; " + topology.withoutNvlink() + SAYING_NVLINK;
      }
    }
    return InvalidUsage.of(
        "%s on rank %d: no algorithm supports it; there are %s%s",
        call.call(), call.rank(), names(), limits);
  }

  /** Returns the algorithm with the least estimate, or null if none supports the call. */
  private CollectiveAlgorithm fastest(BoundCall call, boolean byCopyEngines) {
    CollectiveAlgorithm best = null;
    double least = Double.POSITIVE_INFINITY;
    List<CollectiveAlgorithm> candidates =
        call.call() instanceof RoutedCall
            ? routed
            : call.call() instanceof FusedAllReduce ? fused : sized;
    for (int i = 0; i < candidates.size(); i++) {
      CollectiveAlgorithm algorithm = candidates.get(i);
      if ((!byCopyEngines || algorithm.usesCopyEngines())
          && algorithm.supports(call)
          && isAllowed(algorithm, call, false)) {
        double estimate = algorithm.estimate(call);
        if (best == null || estimate < least) {
          best = algorithm;
          least = estimate;
        }
      }
    }
    return best;
  }

  /**
   * Returns whether an algorithm keeps what {@link CollectivesOptions#reproducible} promises.
   *
   * @param always whether it does all calls of the collective that it supports
   */
  private boolean isAllowed(CollectiveAlgorithm algorithm, BoundCall call, boolean always) {
    if (!reproducible || !dependsOnOrder(call.call())) {
      return true;
    }
    ReductionOrder order = algorithm.order(call);
    return order == ReductionOrder.OF_RANKS || always && order == ReductionOrder.FIXED;
  }

  private static boolean dependsOnOrder(CollectiveCall call) {
    boolean combines = call.collective().reduces() || call instanceof FusedAllReduce;
    return combines
        && call.type().isFloatingPoint()
        && call.op() != ReduceOp.MIN
        && call.op() != ReduceOp.MAX;
  }

  /** Refuses an invalid call before anything is enqueued. Allocates nothing for a valid one. */
  static void check(CollectiveCall call, Device device, RankTopology topology) {
    int nRanks = topology.nRanks();
    int rank = topology.rank();
    checkRank(call, rank, "root", call.root(), call.collective().hasRoot(), nRanks);
    checkRank(call, rank, "destination", call.destination(), false, nRanks);
    checkRank(call, rank, "source", call.source(), false, nRanks);
    checkCounts(call, rank, nRanks);
    checkBuffer(call, device, rank, "input", call.input(), call.inputBytes(rank, nRanks));
    checkBuffer(call, device, rank, "output", call.output(), call.outputBytes(rank, nRanks));
    int size = call.type().size();
    requireAlignment(call, rank, "input", call.inputBytes(rank, nRanks), call.input(), size);
    requireAlignment(call, rank, "output", call.outputBytes(rank, nRanks), call.output(), size);
    checkOverlap(call, rank, nRanks);
    if (call instanceof RoutedCall routed) {
      routed.checkRouting(device, topology);
    } else if (call instanceof FusedAllReduce fused) {
      SeparateEpilogue.requireKind(fused, topology);
      long bytes = call.countBytes();
      requireAlignment(call, rank, "input", bytes, call.input(), FusedAllReduce.WORD);
      fused.epilogue().check(fused, new EpilogueBuffers(call, device, rank));
    }
  }

  private record EpilogueBuffers(CollectiveCall call, Device device, int rank)
      implements Epilogue.BufferCheck {
    @Override
    public void require(String what, DeviceBuffer buffer, long bytes, int alignment) {
      checkBuffer(call, device, rank, what, buffer, bytes);
      requireAlignment(call, rank, what, bytes, buffer, alignment);
    }

    @Override
    public void refuse(String problem) {
      throw InvalidUsage.of("%s on rank %d: %s", call, rank, problem);
    }
  }

  /** Refuses a buffer of some bytes that does not begin at a multiple of an alignment. */
  private static void requireAlignment(
      CollectiveCall call, int rank, String what, long bytes, DeviceBuffer buffer, int alignment) {
    if (bytes > 0 && buffer.address() % alignment != 0) {
      throw InvalidUsage.of(
          "%s on rank %d: the %s must begin at a multiple of %d bytes; a slice of another buffer"
              + " may not",
          call, rank, what, alignment);
    }
  }

  /**
   * Refuses a null buffer that this rank needs, when the call is given to a lane: so the caller's
   * line is in the stack trace.
   */
  static CollectiveCall requireBuffers(CollectiveCall call, RankTopology topology) {
    InvalidUsage.requireNonNull(call, "collective", "call");
    int nRanks = topology.nRanks();
    int rank = topology.rank();
    boolean noInput = call.input() == null && call.inputBytes(rank, nRanks) > 0;
    if (noInput || call.output() == null && call.outputBytes(rank, nRanks) > 0) {
      throw InvalidUsage.of(
          "%s on rank %d: %s=null; it must not be null", call, rank, noInput ? "input" : "output");
    }
    return call;
  }

  private static void checkRank(
      CollectiveCall call, int rank, String what, int value, boolean isNeeded, int nRanks) {
    boolean isAbsent = value == CollectiveCall.NO_PEER && !isNeeded;
    if (!isAbsent && (value < 0 || value >= nRanks)) {
      throw InvalidUsage.of("%s on rank %d: %s=%d of %d ranks", call, rank, what, value, nRanks);
    }
  }

  private static void checkCounts(CollectiveCall call, int rank, int nRanks) {
    if (call instanceof AllToAllV counted && counted.countedRanks() != nRanks) {
      throw InvalidUsage.of(
          "%s on rank %d: counts for %d ranks, there are %d",
          call, rank, counted.countedRanks(), nRanks);
    }
    long sent = call.sendBytes(rank, rank);
    long received = call.receiveBytes(rank, rank);
    if (sent != received) {
      throw InvalidUsage.of(
          "%s on rank %d: sends itself %d bytes and expects %d; one call must do both, with as"
              + " many",
          call, rank, sent, received);
    }
  }

  /** Refuses a buffer besides input and output that is missing or unfit. */
  static void requireOther(
      CollectiveCall call, Device device, int rank, String what, DeviceBuffer buffer, long bytes) {
    checkBuffer(call, device, rank, what, buffer, bytes);
    requireWords(call, rank, what, buffer);
  }

  /** Refuses a buffer that does not begin at a multiple of 8 bytes. */
  static void requireWords(CollectiveCall call, int rank, String what, DeviceBuffer buffer) {
    requireAlignment(call, rank, what, buffer.size(), buffer, Long.BYTES);
  }

  private static void checkBuffer(
      CollectiveCall call, Device device, int rank, String what, DeviceBuffer buffer, long bytes) {
    if (bytes == 0) {
      return;
    }
    if (buffer == null || bytes > buffer.size()) {
      throw InvalidUsage.of(
          "%s on rank %d: the %s takes %d bytes, the buffer has %d",
          call, rank, what, bytes, buffer == null ? 0 : buffer.size());
    }
    if (buffer.isClosed()) {
      throw InvalidUsage.of("%s on rank %d: the %s is closed", call, rank, what);
    }
    if (buffer.device() != device) {
      throw InvalidUsage.of(
          "%s on rank %d: the %s is memory of another device than the communicator's, %s",
          call, rank, what, device.description());
    }
  }

  private static void checkOverlap(CollectiveCall call, int rank, int nRanks) {
    if (!call.isInPlace(rank, nRanks)) {
      return;
    }
    long distance = call.output().address() - call.input().address();
    long share = rank * call.strideBytes();
    boolean isAllowed =
        switch (call.collective()) {
          case ALL_REDUCE, REDUCE, BROADCAST, ALL_TO_ALL -> distance == 0;
          case ALL_GATHER, GATHER -> distance == -share;
          case REDUCE_SCATTER, SCATTER -> distance == share;
          case FUSED_ALL_REDUCE, ALL_TO_ALL_V, SEND_RECEIVE, DISPATCH, COMBINE, BARRIER -> false;
        };
    if (!isAllowed) {
      throw InvalidUsage.of(
          "%s on rank %d: input and output overlap, the output is %+d bytes from the input; give"
              + " separate buffers, or the in-place layout that CollectiveCall describes",
          call, rank, distance);
    }
  }
}
