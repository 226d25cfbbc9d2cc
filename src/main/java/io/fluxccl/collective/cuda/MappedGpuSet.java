// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.cuda;

import io.fluxccl.FluxCclException;
import io.fluxccl.collective.AlgorithmSet;
import io.fluxccl.collective.BoundCall;
import io.fluxccl.collective.CollectiveAlgorithm;
import io.fluxccl.collective.GpuKernels;
import io.fluxccl.collective.PeerConnections;
import io.fluxccl.collective.RankTopology;
import io.fluxccl.collective.Registration;
import io.fluxccl.concurrent.BlockingTasks;
import io.fluxccl.concurrent.Closing;
import io.fluxccl.device.AbortFlag;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.PinnedBuffer;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.device.cuda.CudaKernel;
import io.fluxccl.transport.RegisteredMemory;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import org.agrona.BitUtil;

/**
 * The algorithms of a lane of GPUs that map each other's memory, and their state: one buffer on
 * every rank, exchanged once. It consists of regions. Each region begins with its own epochs and
 * flags, because a rank may launch an exchange while its peers launch none: the kernels of other
 * regions need the same epoch on every rank.
 */
final class MappedGpuSet implements AlgorithmSet {
  /** Regions begin at multiples of this number of bytes. */
  private static final int ALIGNMENT = 4096;

  /** Algorithms whose kernels share epochs and flags. */
  interface Region {
    /** Returns the bytes of the region, including {@link MappedPeers#AREAS_OFFSET}. */
    long length();

    /** Fills the new, zeroed region at an offset of this rank's state, if zeros are not enough. */
    default void fill(DeviceBuffer state, long offset) {}

    /**
     * Loads kernels and returns the algorithms, in the same order on every rank.
     *
     * @param states addresses of the region, by rank
     */
    List<GpuAlgorithm> bind(long[] states);
  }

  private final PeerConnections connections;
  final CudaDevice gpu;
  final RankTopology topology;
  final GpuGrid grid;
  final int rank;
  final int nRanks;
  private final Exchanges exchanges;
  private final List<Region> regions;
  private final long[] offsets;
  private final DeviceBuffer state;
  private final PinnedBuffer fault;
  private List<CollectiveAlgorithm> algorithms = List.of();

  // Replaced as a whole, with one more scratch in it.
  private volatile List<Scratch> scratches = List.of();

  // Guarded by this.
  private boolean closed;

  private MappedGpuSet(PeerConnections connections) {
    this.connections = connections;
    this.gpu = (CudaDevice) connections.communicator().device();
    this.topology = connections.topology();
    this.grid = GpuGrid.of(topology);
    this.rank = topology.rank();
    this.nRanks = topology.nRanks();
    this.exchanges = new Exchanges(this);
    // In the order in which algorithms with equal estimates are chosen.
    this.regions =
        List.of(exchanges, new Reductions.Quantized(this), new Reductions(this), new Routes(this));
    this.offsets = new long[regions.size()];
    long end = 0;
    for (int i = 0; i < offsets.length; i++) {
      offsets[i] = end;
      end = BitUtil.align(end + regions.get(i).length(), ALIGNMENT);
    }
    this.state = gpu.allocate(end);
    try {
      for (int i = 0; i < offsets.length; i++) {
        regions.get(i).fill(state, offsets[i]);
      }
      this.fault = gpu.allocatePinned(Long.BYTES);
    } catch (RuntimeException | Error e) {
      state.close();
      throw e;
    }
  }

  static CompletableFuture<AlgorithmSet> prepare(PeerConnections connections) {
    // Allocating, filling and loading kernels block, but set-ups continue on threads that must not.
    return CompletableFuture.supplyAsync(
            () -> new MappedGpuSet(connections), BlockingTasks.EXECUTOR)
        .thenCompose(
            set ->
                connections
                    .exchange(set.state)
                    .thenApplyAsync(set::bind, BlockingTasks.EXECUTOR)
                    .whenComplete(PeerConnections.onFailure(set::close)));
  }

  private AlgorithmSet bind(RegisteredMemory[] states) {
    List<CollectiveAlgorithm> all = new ArrayList<>();
    for (int i = 0; i < offsets.length; i++) {
      all.addAll(regions.get(i).bind(MappedPeers.addresses(states, offsets[i])));
    }
    algorithms = List.copyOf(all);
    return this;
  }

  /** Returns the abort flag that waits of kernels watch. */
  AbortFlag abort() {
    return connections.communicator().abortFlag();
  }

  /** Loads a kernel for all types. */
  CudaKernel kernel(String name) {
    return GpuKernels.one(gpu, name, 0);
  }

  /** Returns the argument of all kernels of a region. */
  MappedPeers peers(long[] states) {
    return new MappedPeers(topology, states, abort());
  }

  /** Returns where kernels report invalid values that they have read from the device. */
  long faultAddress() {
    return fault.deviceAddress();
  }

  @Override
  public List<CollectiveAlgorithm> algorithms() {
    return algorithms;
  }

  @Override
  public void registered(Registration registration) {
    exchanges.register(registration, state, offsets[0]);
  }

  @Override
  public CompletableFuture<Void> reserve(long bytes) {
    long size = Scratch.sizeFor(bytes, grid);
    if (scratches.stream().anyMatch(space -> space.bytes >= size) || size == 0) {
      return CompletableFuture.completedFuture(null);
    }
    return Scratch.create(connections, size, grid).thenAccept(this::add);
  }

  /** Adds scratch, or closes it if this set was closed while it was made. */
  private void add(Scratch space) {
    synchronized (this) {
      if (!closed) {
        List<Scratch> more = new ArrayList<>(scratches);
        more.add(space);
        scratches = List.copyOf(more);
        return;
      }
    }
    space.close();
  }

  /**
   * Returns the scratch for a call on a registered buffer: the oldest that is large enough for that
   * buffer. It existed when the buffer was registered, so every rank chooses the same, whatever has
   * been registered since.
   *
   * @return null if there is none
   */
  Scratch scratch(BoundCall call) {
    Registration registration =
        call.isOutputRegistered() ? call.outputRegistration() : call.inputRegistration();
    if (registration != null) {
      long size = Scratch.sizeFor(registration.buffer().size(), grid);
      List<Scratch> now = scratches;
      for (int i = 0; i < now.size() && size > 0; i++) {
        if (now.get(i).bytes >= size) {
          return now.get(i);
        }
      }
    }
    return null;
  }

  @Override
  public FluxCclException fault() {
    // Pairs with the end of the kernel's launch, before this run's completion.
    return Routes.Fault.decode(fault.buffer().getLongVolatile(0), rank);
  }

  @Override
  public void close() {
    synchronized (this) {
      closed = true;
    }
    scratches.forEach(Scratch::close);
    Closing.all(fault, state);
  }
}
