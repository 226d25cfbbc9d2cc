// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.Deadline;
import io.fluxccl.InvalidUsage;
import io.fluxccl.collective.LaneDescription.DeviceDescription;
import io.fluxccl.collective.PeerConnections.TransportChoice;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.concurrent.BlockingTasks;
import io.fluxccl.concurrent.Closing;
import io.fluxccl.device.DeviceKind;
import io.fluxccl.device.DeviceStream;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.ServiceLoader;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.stream.Collectors;
import org.slf4j.LoggerFactory;

/**
 * Opens a lane together with all ranks. {@link #start} lists the steps. Ranks exchange one {@link
 * LaneDescription} each, in one all-gather on the host. All that follows is computed from these
 * descriptions, except what only a connection can carry: endpoints and memory of the families.
 */
final class LaneOpening {
  private static final AtomicBoolean WARNED = new AtomicBoolean();
  private static final AtomicBoolean WARNED_OF_LINKS = new AtomicBoolean();

  private final Communicator communicator;
  private final DeviceStream stream;
  private final boolean isStreamOwn;
  private final CollectivesOptions options;
  private final Deadline deadline;
  private final TransportChoice choice;

  // Each step uses what the steps before have left here; steps run one after the other.
  private final List<AlgorithmFamily> families;
  private final List<AlgorithmSet> sets = new ArrayList<>();
  private Tuning tuning = Tuning.NONE;
  private InvalidUsage unreadableTuning;
  private LaneDescription own;
  private List<LaneDescription> ranks;
  private PeerConnections peers;
  private CallLedger ledger;

  private LaneOpening(
      Communicator communicator,
      DeviceStream stream,
      boolean isStreamOwn,
      CollectivesOptions options) {
    this.communicator = communicator;
    this.stream = stream;
    this.isStreamOwn = isStreamOwn;
    this.options = options;
    this.deadline = Deadline.after(options.setupTimeout().orElse(options.timeout()));
    this.choice = TransportChoice.of(options);
    this.families = new ArrayList<>(options.families());
  }

  /**
   * Connects to all ranks and prepares the families that work among them.
   *
   * @param isStreamOwn whether the stream is closed with the lane
   * @return the lane; or why it can't be opened. Continuations may block
   */
  static CompletableFuture<Lane> open(
      Communicator communicator,
      DeviceStream stream,
      boolean isStreamOwn,
      CollectivesOptions options) {
    LaneOpening opening = new LaneOpening(communicator, stream, isStreamOwn, options);
    return communicator
        .inTurn(options.tag(), opening::start)
        .thenApply(lane -> lane.live(isStreamOwn))
        .whenCompleteAsync(
            (lane, failure) -> opening.closeStreamUnless(lane), BlockingTasks.EXECUTOR);
  }

  private CompletableFuture<Lane> start() {
    return CompletableFuture.runAsync(this::describeThisRank, BlockingTasks.EXECUTOR)
        .thenCompose(described -> exchangeDescriptions())
        .thenComposeAsync(exchanged -> connect(), BlockingTasks.EXECUTOR)
        .thenComposeAsync(connected -> prepareFamilies(), BlockingTasks.EXECUTOR)
        .thenComposeAsync(prepared -> openLedger(), BlockingTasks.EXECUTOR)
        .thenComposeAsync(opened -> awaitAllRanks(), BlockingTasks.EXECUTOR)
        .thenApply(ready -> makeLane())
        .whenCompleteAsync((lane, failure) -> giveUp(failure), BlockingTasks.EXECUTOR);
  }

  /** Loads families and the tuning file, and searches for networks. */
  private void describeThisRank() {
    ServiceLoader.load(AlgorithmFamily.class, AlgorithmFamily.class.getClassLoader())
        .forEach(families::add);
    families.sort(Comparator.comparing(AlgorithmFamily::name));
    int cores = Runtime.getRuntime().availableProcessors();
    int coresPerRank = Math.max(1, cores / communicator.bootstrap().nRanksPerNode());
    String names = families.stream().map(AlgorithmFamily::name).collect(Collectors.joining(","));
    own =
        new LaneDescription(
            ThreadLocalRandom.current().nextLong(),
            options.threads() > 0 ? options.threads() : coresPerRank,
            DeviceDescription.of(communicator.device(), choice.usable(communicator)),
            List.of(
                "families=" + names,
                "algorithms=" + new TreeMap<>(options.algorithms()),
                "tuning=" + readTuning(),
                "checked=" + options.checked(),
                "maxBlocks=" + options.maxBlocks(),
                "preferCopyEngines=" + options.preferCopyEngines(),
                "reproducible=" + options.reproducible(),
                families.stream()
                    .map(AlgorithmFamily::settings)
                    .filter(settings -> !settings.isEmpty())
                    .collect(Collectors.joining(", "))));
  }

  /**
   * Reads the tuning file. If that fails, the exchange carries "refused" to the peers, so they
   * don't wait.
   */
  private String readTuning() {
    if (options.tuning().isEmpty()) {
      return "none";
    }
    try {
      tuning = Tuning.read(options.tuning().get());
      return tuning.fingerprint();
    } catch (InvalidUsage e) {
      unreadableTuning = e;
      return "refused";
    }
  }

  private CompletableFuture<Void> exchangeDescriptions() {
    return communicator
        .exchange(options.tag(), own.encode(), deadline)
        .thenAccept(this::requireSameSettings);
  }

  private void requireSameSettings(List<byte[]> descriptions) {
    // This rank's own error is more precise than a difference to the others' tuning files.
    if (unreadableTuning != null) {
      throw unreadableTuning;
    }
    int rank = communicator.bootstrap().rank();
    ranks = new ArrayList<>();
    for (int peer = 0; peer < descriptions.size(); peer++) {
      ranks.add(LaneDescription.decode(descriptions.get(peer), peer));
      own.requireSameSettings(rank, ranks.get(peer), peer);
    }
  }

  private CompletableFuture<Void> connect() {
    return new PeerConnections(communicator, choice, options, deadline, ranks)
        .connect()
        .thenAccept(connections -> peers = connections);
  }

  /** Prepares one family after the other, so that set-ups match between ranks. */
  private CompletableFuture<Void> prepareFamilies() {
    warnOfGpus();
    CompletableFuture<Void> done = CompletableFuture.completedFuture(null);
    for (AlgorithmFamily family : families) {
      if (family.supports(peers.topology())) {
        done =
            done.thenComposeAsync(ready -> family.prepare(peers), BlockingTasks.EXECUTOR)
                .thenAccept(sets::add);
      }
    }
    return done;
  }

  /** Warns once in a process: every lane would log the same. */
  private void warnOfGpus() {
    if (peers.rank() == 0 && peers.topology().kind() == DeviceKind.CUDA) {
      DeviceDescription.sharingWarning(peers.devices(), communicator.bootstrap())
          .filter(warning -> WARNED.compareAndSet(false, true))
          .ifPresent(LoggerFactory.getLogger(Collectives.class)::warn);
      String withoutNvlink = peers.topology().withoutNvlink();
      if (!withoutNvlink.isEmpty() && WARNED_OF_LINKS.compareAndSet(false, true)) {
        LoggerFactory.getLogger(Collectives.class)
            .warn(
                "{}, so algorithms that need it are not used; if there is one, set {}=nvlink on all"
                    + " ranks",
                withoutNvlink,
                DeviceDescription.LINK_VARIABLE);
      }
    }
  }

  private CompletableFuture<Void> openLedger() {
    return CallLedger.open(peers, deadline).thenAccept(opened -> ledger = opened);
  }

  /**
   * Waits until every rank has prepared its families. Without this second exchange a rank that
   * fails, or closes its lane early, would free memory that a peer is still mapping.
   */
  private CompletableFuture<?> awaitAllRanks() {
    return communicator.exchange(options.tag(), new byte[0], deadline);
  }

  private Lane makeLane() {
    return new Lane(stream, isStreamOwn, peers, sets, tuning, ledger);
  }

  /** Closes all that was prepared. An error of that is suppressed in the failure. */
  private void giveUp(Throwable failure) {
    if (failure == null || peers == null) {
      return;
    }
    boolean isWrapped = failure instanceof CompletionException && failure.getCause() != null;
    Throwable reason = isWrapped ? failure.getCause() : failure;
    try {
      Closing.all(() -> Closing.all(sets), ledger, peers);
    } catch (Throwable e) {
      if (e != reason) {
        reason.addSuppressed(e);
      }
    }
  }

  private void closeStreamUnless(Lane lane) {
    if (lane == null && isStreamOwn) {
      stream.close();
    }
  }
}
