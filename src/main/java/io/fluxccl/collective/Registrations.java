package io.fluxccl.collective;

import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.transport.RegisteredMemory;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.function.Consumer;
import java.util.function.Function;
import org.agrona.CloseHelper;

/**
 * The buffers registered with a lane. Any thread looks them up for each call; the lane changes them
 * rarely, between two runs.
 */
final class Registrations {
  private final PeerConnections peers;
  private final List<AlgorithmSet> sets;

  // Replaced as a whole, so that a lookup takes no lock.
  private volatile List<Registration> open = List.of();

  // Guarded by this.
  private int registered;

  /**
   * Creates the registrations of a lane.
   *
   * @param peers the connections over which buffers are exchanged
   * @param sets the families, which prepare memory for registered buffers
   */
  Registrations(PeerConnections peers, List<AlgorithmSet> sets) {
    this.peers = peers;
    this.sets = sets;
  }

  /**
   * Registers a buffer with all ranks, each of which calls this.
   *
   * @param known called with the memories of all ranks, by rank, before the next buffer is
   *     registered: in the same order on all ranks; it calls {@link #add}
   * @return its registration, after the sets have been notified; {@link InvalidUsage} if the buffer
   *     is of another device, or of another size than a peer's. Continuations may block
   */
  CompletableFuture<Registration> register(
      DeviceBuffer buffer, Function<RegisteredMemory[], Registration> known) {
    return exchange(buffer, known)
        .thenApplyAsync(this::notifySets, Lane.MAY_BLOCK)
        .whenCompleteAsync((done, failure) -> {}, Lane.MAY_BLOCK);
  }

  private Registration notifySets(Registration registration) {
    try {
      sets.forEach(set -> set.registered(registration));
      return registration;
    } catch (RuntimeException | Error e) {
      // The peers count on this registration, and no caller here can close it.
      peers.communicator().abort(FluxCclException.from(e));
      CloseHelper.close(e::addSuppressed, registration);
      throw e;
    }
  }

  private CompletableFuture<Registration> exchange(
      DeviceBuffer buffer, Function<RegisteredMemory[], Registration> known) {
    Communicator communicator = peers.communicator();
    if (buffer.device() != communicator.device()) {
      return CompletableFuture.failedFuture(
          InvalidUsage.of(
              "register on rank %d: the buffer must be of the communicator's device, %s",
              peers.rank(), communicator.device().description()));
    }
    return communicator.inTurn(
        peers.tag(),
        () -> {
          CompletableFuture<Void> ready = CompletableFuture.completedFuture(null);
          for (AlgorithmSet set : sets) {
            ready = ready.thenComposeAsync(done -> set.reserve(buffer.size()), Lane.MAY_BLOCK);
          }
          return ready
              .thenComposeAsync(done -> peers.exchange(buffer), Lane.MAY_BLOCK)
              .thenCompose(memories -> awaitPeers(memories, known));
        });
  }

  /**
   * Waits for all ranks: closing earlier would take memory from a peer that is still mapping it.
   */
  private CompletableFuture<Registration> awaitPeers(
      RegisteredMemory[] memories, Function<RegisteredMemory[], Registration> known) {
    return peers
        .awaitAllRanks()
        .thenApplyAsync(met -> known.apply(memories), Lane.MAY_BLOCK)
        .whenCompleteAsync(PeerConnections.onFailure(() -> peers.forget(memories)), Lane.MAY_BLOCK);
  }

  /**
   * Adds a registration, which calls bound from now on may use.
   *
   * @param memories of all ranks, by rank
   * @param onClose called when the user closes the registration; it calls {@link #close}
   */
  synchronized Registration add(
      DeviceBuffer buffer, RegisteredMemory[] memories, Consumer<Registration> onClose) {
    Registration registration = new Registration(registered++, buffer, memories, onClose);
    List<Registration> more = new ArrayList<>(open);
    more.add(registration);
    open = List.copyOf(more);
    return registration;
  }

  /**
   * Removes a registration, and closes its memories behind the calls already enqueued. Idempotent.
   */
  void close(Registration registration) {
    if (remove(registration)) {
      peers
          .communicator()
          .device()
          .whenEnqueuedWorkIsDone(() -> peers.forget(registration.memories()));
    }
  }

  private synchronized boolean remove(Registration registration) {
    List<Registration> fewer = new ArrayList<>(open);
    boolean removed = fewer.remove(registration);
    open = List.copyOf(fewer);
    return removed;
  }

  boolean has(Registration registration) {
    return open.contains(registration);
  }

  /** Returns a call with the registrations that hold its buffers. */
  BoundCall bind(CollectiveCall call) {
    return new BoundCall(call, peers.topology(), of(call.input()), of(call.output()));
  }

  /** Adds the registrations that hold a call's buffers. */
  void addUsed(CollectiveCall call, Set<Registration> to) {
    BoundCall bound = bind(call);
    for (Registration used :
        new Registration[] {bound.inputRegistration(), bound.outputRegistration()}) {
      if (used != null) {
        to.add(used);
      }
    }
  }

  /** Returns the oldest registration that holds a buffer; null if there is none. */
  private Registration of(DeviceBuffer buffer) {
    if (buffer != null) {
      List<Registration> now = open;
      for (int i = 0; i < now.size(); i++) {
        if (now.get(i).holds(buffer)) {
          return now.get(i);
        }
      }
    }
    return null;
  }
}
