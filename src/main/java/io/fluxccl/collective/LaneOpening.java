package io.fluxccl.collective;

import io.fluxccl.Deadline;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.concurrent.Closing;
import io.fluxccl.device.DeviceKind;
import io.fluxccl.device.DeviceStream;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.ServiceLoader;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.atomic.AtomicBoolean;
import org.slf4j.LoggerFactory;

/** The steps in which ranks open a lane together. */
final class LaneOpening {
  private static final AtomicBoolean REMARKED = new AtomicBoolean();

  private LaneOpening() {}

  /**
   * Connects to all ranks and readies the families that work among them.
   *
   * @param stream closed with the lane
   */
  static CompletableFuture<Lane> open(
      Communicator communicator, DeviceStream stream, CollectivesOptions options) {
    Deadline deadline = Deadline.after(options.setupTimeout().orElse(options.timeout()));
    List<AlgorithmSet> sets = new ArrayList<>();
    return communicator
        .inTurn(
            options.tag(),
            () ->
                CompletableFuture.supplyAsync(
                        () -> LaneSettings.of(options, families(options)),
                        PeerConnections.MAY_BLOCK)
                    .thenCompose(
                        settings ->
                            settings
                                .compare(communicator, options.tag(), deadline)
                                .thenComposeAsync(
                                    same ->
                                        PeerConnections.connect(
                                            communicator,
                                            TransportChoice.of(options),
                                            options.tag(),
                                            deadline,
                                            options.threads()),
                                    PeerConnections.MAY_BLOCK)
                                .thenComposeAsync(
                                    peers ->
                                        prepare(peers, settings.families(), sets)
                                            // Whoever closes, or fails from here on, must not
                                            // take memory from a peer that is still mapping it.
                                            .thenComposeAsync(
                                                ready ->
                                                    LeaveNotices.meetAll(
                                                        communicator, options.tag(), deadline),
                                                PeerConnections.MAY_BLOCK)
                                            .thenApply(
                                                leaveNotices ->
                                                    new Lane(
                                                        communicator,
                                                        stream,
                                                        options,
                                                        peers,
                                                        sets,
                                                        settings.tuning(),
                                                        leaveNotices))
                                            .whenCompleteAsync(
                                                (lane, failure) -> {
                                                  if (failure != null) {
                                                    giveUp(failure, sets, peers);
                                                  }
                                                },
                                                PeerConnections.MAY_BLOCK),
                                    PeerConnections.MAY_BLOCK)))
        .thenApply(Lane::live)
        .whenComplete(
            (lane, failure) -> {
              if (failure != null) {
                stream.close();
              }
            })
        // Whoever blocks in what follows must not block the thread on which set-ups go on.
        .whenCompleteAsync((lane, failure) -> {}, PeerConnections.MAY_BLOCK);
  }

  /** What can't be closed keeps nothing else from it, and is told beside the reason. */
  private static void giveUp(Throwable failure, List<AlgorithmSet> sets, PeerConnections peers) {
    boolean isWrapped = failure instanceof CompletionException && failure.getCause() != null;
    Throwable reason = isWrapped ? failure.getCause() : failure;
    try {
      Closing.all(() -> Closing.all(sets), peers);
    } catch (Throwable e) {
      if (e != reason) {
        reason.addSuppressed(e);
      }
    }
  }

  /** Once a process: it would be the same of every lane. */
  private static void remark(PeerConnections peers) {
    if (peers.rank() == 0 && peers.topology().kind() == DeviceKind.CUDA) {
      GpuSharing.remark(peers.devices(), peers.communicator().bootstrap())
          .filter(remark -> REMARKED.compareAndSet(false, true))
          .ifPresent(LoggerFactory.getLogger(Collectives.class)::warn);
    }
  }

  private static List<AlgorithmFamily> families(CollectivesOptions options) {
    List<AlgorithmFamily> all = new ArrayList<>(options.families());
    ServiceLoader.load(AlgorithmFamily.class, AlgorithmFamily.class.getClassLoader())
        .forEach(all::add);
    all.sort(Comparator.comparing(AlgorithmFamily::name));
    return all;
  }

  private static CompletableFuture<Void> prepare(
      PeerConnections peers, List<AlgorithmFamily> families, List<AlgorithmSet> sets) {
    remark(peers);
    CompletableFuture<Void> done = CompletableFuture.completedFuture(null);
    for (AlgorithmFamily family : families) {
      if (family.supports(peers.topology())) {
        // One after the other, so that their set-ups meet.
        done =
            done.thenComposeAsync(ready -> family.prepare(peers), PeerConnections.MAY_BLOCK)
                .thenAccept(sets::add);
      }
    }
    return done;
  }
}
