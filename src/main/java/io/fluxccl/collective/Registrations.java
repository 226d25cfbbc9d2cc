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
 * The buffers that are registered with a lane. Looked up for each call, by any thread; changed
 * rarely, by the lane between two runs.
 */
final class Registrations {
  private final PeerConnections peers;
  private final List<AlgorithmSet> sets;

  // Replaced as a whole, so that who looks up takes no lock.
  private volatile List<Registration> open = List.of();

  // Guarded by this.
  private int registered;

  /**
   * Of a lane.
   *
   * @param peers over which ranks tell each other of their buffers
   * @param sets that have to make room for buffers
   */
  Registrations(PeerConnections peers, List<AlgorithmSet> sets) {
    this.peers = peers;
    this.sets = sets;
  }

  /**
   * Makes a buffer known to all ranks and all ranks' known here; every rank calls it.
   *
   * @param known called with everybody's, by rank, before the next buffer's turn: in the same order
   *     on all ranks; it calls {@link #add}
   * @return what that gave, once the sets know of it; {@link InvalidUsage} if the buffer is of
   *     another device, or of another size than a peer's. What is chained to it may block
   */
  CompletableFuture<Registration> register(
      DeviceBuffer buffer, Function<RegisteredMemory[], Registration> known) {
    return exchange(buffer, known)
        .thenApplyAsync(this::tellSets, Lane.MAY_BLOCK)
        .whenCompleteAsync((done, failure) -> {}, Lane.MAY_BLOCK);
  }

  private Registration tellSets(Registration registration) {
    try {
      sets.forEach(set -> set.registered(registration));
      return registration;
    } catch (RuntimeException | Error e) {
      // Its peers count on it, and nobody here will ever close it.
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
          new InvalidUsage(
              "register on rank "
                  + communicator.bootstrap().rank()
                  + ": the buffer must be of the communicator's device, "
                  + communicator.device().description()));
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
              .thenCompose(memories -> meet(memories, known));
        });
  }

  /** Who closes now must not take memory from a peer that is still mapping it. */
  private CompletableFuture<Registration> meet(
      RegisteredMemory[] memories, Function<RegisteredMemory[], Registration> known) {
    return peers
        .awaitAllRanks()
        .thenApplyAsync(met -> known.apply(memories), Lane.MAY_BLOCK)
        .whenCompleteAsync(
            (registration, failure) -> {
              if (failure != null) {
                peers.forget(memories);
              }
            },
            Lane.MAY_BLOCK);
  }

  /**
   * Calls that come from now on may use a buffer.
   *
   * @param memories everybody's, by rank
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
   * Calls that come from now on don't use it; its memories go behind those enqueued. Idempotent.
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

  /** A call with the registrations that its buffers lie in. */
  BoundCall bind(CollectiveCall call) {
    return new BoundCall(call, peers.topology(), of(call.input()), of(call.output()));
  }

  /** Adds the registrations that a call's buffers lie in. */
  void addUsed(CollectiveCall call, Set<Registration> to) {
    BoundCall bound = bind(call);
    for (Registration used :
        new Registration[] {bound.inputRegistration(), bound.outputRegistration()}) {
      if (used != null) {
        to.add(used);
      }
    }
  }

  /** The first made registration that holds a buffer; null if there is none. */
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
