// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.concurrent.BlockingTasks;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.transport.RegisteredMemory;
import io.fluxccl.wire.WireReader;
import io.fluxccl.wire.WireWriter;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Objects;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.function.Supplier;
import java.util.stream.LongStream;
import java.util.stream.Stream;
import org.agrona.CloseHelper;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The buffers registered with a lane. Any thread looks them up for each call; the lane changes them
 * rarely, between two runs.
 */
final class Registrations {
  private static final Logger LOG = LoggerFactory.getLogger(Registrations.class);

  private final PeerConnections peers;
  private final RankTopology topology;
  private final List<AlgorithmSet> sets;

  // Replaced as a whole, so that a lookup takes no lock.
  private volatile List<Registration> open = List.of();

  private final Object lock;
  private final Runnable refuseIfOver;

  // Guarded by the lock.
  private int registered;
  private final Set<String> reported = new HashSet<>();

  /**
   * Creates the registrations of a lane.
   *
   * @param peers the connections over which buffers are exchanged
   * @param sets the families, which prepare memory for registered buffers
   * @param lock held while a run is enqueued: registrations are added and removed between two runs
   * @param refuseIfOver refuses to register when the lane is closed or has failed
   */
  Registrations(
      PeerConnections peers, List<AlgorithmSet> sets, Object lock, Runnable refuseIfOver) {
    this.peers = peers;
    this.topology = peers.topology();
    this.sets = sets;
    this.lock = lock;
    this.refuseIfOver = refuseIfOver;
  }

  /**
   * Registers a buffer with all ranks, each of which calls this; buffers in the same order.
   *
   * @return its registration, after the sets have been notified, unless the buffer is staged;
   *     {@link InvalidUsage} if the buffer belongs to another device, or differs in size from a
   *     peer's. Callbacks may block
   */
  CompletableFuture<Registration> register(DeviceBuffer buffer) {
    return register(() -> CompletableFuture.completedFuture(buffer));
  }

  /** {@link #register(DeviceBuffer)} of a buffer that steps make in the turn of this call. */
  CompletableFuture<Registration> register(Supplier<CompletableFuture<DeviceBuffer>> steps) {
    return peers
        .communicator()
        .inTurn(peers.options().tag(), () -> steps.get().thenCompose(this::exchange))
        .thenApplyAsync(this::notifySets, BlockingTasks.EXECUTOR)
        .whenCompleteAsync((done, failure) -> {}, BlockingTasks.EXECUTOR);
  }

  private Registration notifySets(Registration registration) {
    if (registration.stagedReason().isPresent()) {
      return registration;
    }
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

  private CompletableFuture<Registration> exchange(DeviceBuffer buffer) {
    Communicator communicator = peers.communicator();
    if (buffer.device() != communicator.device()) {
      return CompletableFuture.failedFuture(
          InvalidUsage.of(
              "register on rank %d: the buffer must be memory of the communicator's device, %s",
              peers.rank(), communicator.device().description()));
    }
    return peers
        .exchange("register", () -> SharedBuffer.of(buffer).encode())
        .thenCompose(all -> exchange(buffer, SharedBuffer.decodeAll(all)));
  }

  private CompletableFuture<Registration> exchange(DeviceBuffer buffer, List<SharedBuffer> all) {
    Optional<String> reason = SharedBuffer.stagedReason(all);
    if (reason.isPresent()) {
      return CompletableFuture.supplyAsync(
          () -> addStaged(buffer, all, reason.get()), BlockingTasks.EXECUTOR);
    }
    CompletableFuture<Void> ready = CompletableFuture.completedFuture(null);
    for (AlgorithmSet set : sets) {
      ready = ready.thenComposeAsync(done -> set.reserve(buffer.size()), BlockingTasks.EXECUTOR);
    }
    return ready
        .thenComposeAsync(done -> peers.exchange(buffer), BlockingTasks.EXECUTOR)
        .thenCompose(memories -> awaitPeers(buffer, memories));
  }

  /** Every rank finds the same, and none has mapped anything. */
  private Registration addStaged(DeviceBuffer buffer, List<SharedBuffer> all, String reason) {
    long[] sizes = all.stream().mapToLong(SharedBuffer::size).toArray();
    if (LongStream.of(sizes).distinct().count() > 1) {
      throw peers.differentSizes(sizes);
    }
    synchronized (lock) {
      refuseIfOver.run();
      Registration registration = Registration.staged(registered++, buffer, peers.nRanks(), reason);
      if (reported.add(reason)) {
        LOG.warn(
            "registration {} on rank {}: collectives copy the buffer through the library's own"
                + " memory, as if it were not registered: {}",
            registration.id(),
            peers.rank(),
            reason);
      }
      return registration;
    }
  }

  /**
   * Waits for all ranks: closing earlier would take memory from a peer that is still mapping it.
   */
  private CompletableFuture<Registration> awaitPeers(
      DeviceBuffer buffer, RegisteredMemory[] memories) {
    return peers
        .awaitAllRanks()
        .thenApplyAsync(met -> add(buffer, memories), BlockingTasks.EXECUTOR)
        .whenCompleteAsync(
            PeerConnections.onFailure(() -> peers.forget(memories)), BlockingTasks.EXECUTOR);
  }

  /** Adds a registration, which calls bound from now on may use. */
  private Registration add(DeviceBuffer buffer, RegisteredMemory[] memories) {
    synchronized (lock) {
      refuseIfOver.run();
      Registration registration = new Registration(registered++, buffer, memories, this::close);
      List<Registration> more = new ArrayList<>(open);
      more.add(registration);
      open = List.copyOf(more);
      return registration;
    }
  }

  /**
   * Removes a registration, and closes its memories after the calls already enqueued. Idempotent.
   */
  private void close(Registration registration) {
    synchronized (lock) {
      List<Registration> fewer = new ArrayList<>(open);
      if (fewer.remove(registration)) {
        open = List.copyOf(fewer);
        peers
            .communicator()
            .device()
            .whenEnqueuedWorkIsDone(() -> peers.forget(registration.memories()));
      }
    }
  }

  boolean has(Registration registration) {
    return open.contains(registration);
  }

  /** Returns a call with the registrations that hold its buffers. */
  BoundCall bind(CollectiveCall call) {
    return bind(call, CallSignature.of(call));
  }

  /** {@link #bind(CollectiveCall)} with the signature of the call that contains this one. */
  BoundCall bind(CollectiveCall call, int signature) {
    return new BoundCall(call, topology, of(call.input()), of(call.output()), signature);
  }

  /** Adds the registrations that hold a call's buffers. */
  void addUsed(CollectiveCall call, Set<Registration> to) {
    BoundCall bound = bind(call);
    Stream.of(bound.inputRegistration(), bound.outputRegistration())
        .filter(Objects::nonNull)
        .forEach(to::add);
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

  /**
   * The description of a buffer that a rank sends its peers before any of them maps it, so that all
   * agree whether the buffer is used directly.
   *
   * @param size bytes
   * @param unshareable why peers can't map it; empty if they can
   */
  record SharedBuffer(long size, String unshareable) {
    private static final int MAGIC = 0x46584253; // FXBS
    private static final int VERSION = 1;
    private static final int MOST_TEXT = 4096;

    static SharedBuffer of(DeviceBuffer buffer) {
      String reason = buffer.unshareableReason().orElse("");
      return new SharedBuffer(
          buffer.size(), reason.substring(0, Math.min(reason.length(), MOST_TEXT / 4)));
    }

    byte[] encode() {
      return new WireWriter().header(MAGIC, VERSION).int64(size).string(unshareable).toBytes();
    }

    /** Reads what all ranks sent, by rank; a malformed one fails and names its sender. */
    static List<SharedBuffer> decodeAll(List<byte[]> messages) {
      List<SharedBuffer> all = new ArrayList<>();
      for (int rank = 0; rank < messages.size(); rank++) {
        WireReader in =
            WireReader.ofPeer(messages.get(rank), "description of a buffer", rank)
                .header(MAGIC, VERSION);
        all.add(
            new SharedBuffer(in.int64("size", 0, Long.MAX_VALUE), in.string("reason", MOST_TEXT)));
        in.end();
      }
      return all;
    }

    /** Returns the first reason of a rank that can't share its buffer, the same on every rank. */
    static Optional<String> stagedReason(List<SharedBuffer> all) {
      for (int rank = 0; rank < all.size(); rank++) {
        if (!all.get(rank).unshareable.isEmpty()) {
          return Optional.of("rank " + rank + ": " + all.get(rank).unshareable);
        }
      }
      return Optional.empty();
    }
  }
}
