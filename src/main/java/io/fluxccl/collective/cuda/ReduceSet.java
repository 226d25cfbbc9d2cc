// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.cuda;

import io.fluxccl.DataType;
import io.fluxccl.collective.AlgorithmSet;
import io.fluxccl.collective.BoundCall;
import io.fluxccl.collective.CollectiveAlgorithm;
import io.fluxccl.collective.GpuKernels;
import io.fluxccl.collective.PeerConnections;
import io.fluxccl.collective.Registration;
import io.fluxccl.concurrent.BlockingTasks;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.Kernel;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.device.cuda.CudaKernel;
import io.fluxccl.transport.RegisteredMemory;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import org.agrona.concurrent.UnsafeBuffer;

/** The algorithms that reduce on a lane, and the state that they share. */
final class ReduceSet implements AlgorithmSet {
  private static final byte SENTINEL = -1;
  private static final int FILL_BYTES = 1 << 20;

  // The most bytes that a rank sends in one shot to all peers together.
  private static final int LL8_SENT = 32 << 10;
  private static final int LINES_SENT = 256 << 10;

  // LINES_SENT for a single peer: two shots would send as much, later.
  private static final int LINES_SENT_TO_ONE = 1 << 20;

  // The most bytes of two shots, for each block; other algorithms are faster from fewer bytes on.
  private static final int LL8_PER_BLOCK = 1 << 10;
  private static final int LL128_PER_BLOCK = 32 << 10;
  private static final int SENTINEL_PER_BLOCK = 64 << 10;

  // Bytes of a slice that goes through scratch: larger ones are little faster.
  private static final int STAGED_PER_BLOCK = 128 << 10;

  private final CudaDevice gpu;
  final GpuGrid grid;
  private final List<PacketArea> oneShot;
  private final List<PacketArea> twoShots;
  private final long stagingOffset;
  private final long stagingSlotBytes;
  private final DeviceBuffer state;
  private final PeerConnections connections;

  // Replaced as a whole, with one more scratch in it.
  private volatile List<Scratch> scratches = List.of();

  // Guarded by this.
  private boolean closed;
  MappedPeers peers;
  private List<CollectiveAlgorithm> algorithms = List.of();

  private ReduceSet(PeerConnections connections) {
    this.connections = connections;
    this.gpu = (CudaDevice) connections.communicator().device();
    this.grid = GpuGrid.of(connections.topology());
    int n = connections.nRanks();
    PacketArea ll8 =
        PacketArea.of(PacketArea.Kind.LL8, MappedPeers.AREAS_OFFSET, 1, n, LL8_SENT / (n - 1));
    int inLines = n == 2 ? LINES_SENT_TO_ONE : LINES_SENT / (n - 1);
    PacketArea ll128 = PacketArea.of(PacketArea.Kind.LL128, ll8.end(), 1, n, inLines);
    PacketArea oneSentinel = PacketArea.of(PacketArea.Kind.SENTINEL, ll128.end(), 1, n, inLines);
    PacketArea twoLl8 = twoShots(PacketArea.Kind.LL8, oneSentinel.end(), n, LL8_PER_BLOCK);
    PacketArea twoLl128 = twoShots(PacketArea.Kind.LL128, twoLl8.end(), n, LL128_PER_BLOCK);
    PacketArea twoSentinel =
        twoShots(PacketArea.Kind.SENTINEL, twoLl128.end(), n, SENTINEL_PER_BLOCK);
    this.oneShot = List.of(ll8, ll128, oneSentinel);
    this.twoShots = List.of(twoLl8, twoLl128, twoSentinel);
    this.stagingOffset = twoSentinel.end();
    this.stagingSlotBytes = Scratch.slotBytes((long) STAGED_PER_BLOCK * grid.maxBlocks() / n);
    // Slots for inputs and for results.
    this.state = gpu.allocate(stagingOffset + 2 * n * stagingSlotBytes);
    try {
      fill(state, oneSentinel.offset(), oneSentinel.length());
      fill(state, twoSentinel.offset(), twoSentinel.length());
    } catch (RuntimeException | Error e) {
      state.close();
      throw e;
    }
  }

  private PacketArea twoShots(PacketArea.Kind kind, long offset, int nRanks, int bytesPerBlock) {
    long bytes = (long) bytesPerBlock * grid.maxBlocks();
    // A part is rounded up to whole cache lines.
    return PacketArea.of(kind, offset, 2, nRanks, bytes / nRanks + 64);
  }

  static CompletableFuture<AlgorithmSet> prepare(PeerConnections connections) {
    // Allocating, filling and loading kernels block, but set-ups continue on threads that must not.
    return CompletableFuture.supplyAsync(() -> new ReduceSet(connections), BlockingTasks.EXECUTOR)
        .thenCompose(
            set ->
                connections
                    .exchange(set.state)
                    .thenApplyAsync(set::bind, BlockingTasks.EXECUTOR)
                    .whenComplete(PeerConnections.onFailure(set::close)));
  }

  private AlgorithmSet bind(RegisteredMemory[] states) {
    peers = new MappedPeers(connections.topology(), states, connections.communicator().abortFlag());
    List<CollectiveAlgorithm> all = new ArrayList<>();
    oneShot.forEach(area -> all.add(new OneShot(this, area)));
    twoShots.forEach(area -> all.add(new TwoShots(this, area)));
    if (connections.topology().computeCapability() >= BulkReduce.LEAST_CAPABILITY) {
      all.add(new BulkReduce(this));
    }
    all.add(new StaggeredReduce(this, null));
    all.add(
        new StaggeredReduce(
            this, new Scratch.Handle(states, stagingOffset, stagingSlotBytes, true)));
    all.add(new CopyReduce(this));
    PacketArea rows = twoShots.get(twoShots.size() - 1);
    all.add(new FusedReduce(this, true, rows));
    all.add(new FusedReduce(this, false, rows));
    algorithms = List.copyOf(all);
    return this;
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

  /** Fills an area with sentinels, which mean that no packet is there; blocks until it is done. */
  static void fill(DeviceBuffer buffer, long offset, long length) {
    ByteBuffer ones =
        ByteBuffer.allocateDirect((int) Math.min(length, FILL_BYTES))
            .order(ByteOrder.LITTLE_ENDIAN);
    new UnsafeBuffer(ones).setMemory(0, ones.capacity(), SENTINEL);
    for (long at = 0; at < length; at += ones.capacity()) {
      ones.clear().limit((int) Math.min(ones.capacity(), length - at));
      buffer.upload(offset + at, ones);
    }
  }

  /**
   * Loads a kernel for each type that packets of a kind can carry.
   *
   * @param sharedBytes dynamic shared memory of a block
   */
  Map<DataType, CudaKernel> kernels(String name, PacketArea.Kind kind, int sharedBytes) {
    return GpuKernels.byType(
        gpu,
        "reduce_" + name,
        type ->
            switch (kind) {
              case LL8 -> type.size() <= Integer.BYTES;
              case LL128 -> true;
              case SENTINEL -> type.isFloatingPoint();
            },
        sharedBytes);
  }

  /** Loads a kernel for all types. */
  Kernel kernel(String name) {
    return GpuKernels.one(gpu, "reduce_" + name, 0);
  }

  @Override
  public List<CollectiveAlgorithm> algorithms() {
    return algorithms;
  }

  @Override
  public void close() {
    synchronized (this) {
      closed = true;
    }
    scratches.forEach(Scratch::close);
    state.close();
  }
}
