package io.fluxccl.collective.cuda;

import io.fluxccl.DataType;
import io.fluxccl.collective.AlgorithmSet;
import io.fluxccl.collective.BoundCall;
import io.fluxccl.collective.CollectiveAlgorithm;
import io.fluxccl.collective.PeerConnections;
import io.fluxccl.collective.Registration;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.Kernel;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.transport.RegisteredMemory;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import reactor.core.scheduler.Schedulers;

/** The state of the reductions of a lane, and their algorithms. */
final class ReduceSet implements AlgorithmSet {
  private static final byte SENTINEL = -1;
  private static final int FILL_BYTES = 1 << 20;

  // What goes in one shot to all peers together, at most.
  private static final int LL8_SENT = 32 << 10;
  private static final int LINES_SENT = 256 << 10;

  // To the only peer: two shots would send as much, later.
  private static final int LINES_SENT_TO_ONE = 1 << 20;

  // What goes in two shots, for each block: the limits where something else is faster lie below.
  private static final int LL8_PER_BLOCK = 1 << 10;
  private static final int LL128_PER_BLOCK = 32 << 10;
  private static final int SENTINEL_PER_BLOCK = 64 << 10;

  // Of a slice that goes by way of scratch: larger ones would be little faster.
  private static final int STAGED_PER_BLOCK = 128 << 10;

  private final CudaDevice gpu;
  private final GpuGrid grid;
  private final List<PacketArea> oneShot;
  private final List<PacketArea> twoShots;
  private final long stagingOffset;
  private final long stagingSlotBytes;
  private final DeviceBuffer state;
  private final PeerConnections connections;

  // Replaced as a whole, when a larger one is there.
  private volatile List<ScratchSpace> spaces = List.of();

  // Guarded by this.
  private boolean closed;
  private MappedPeers peers;
  private List<CollectiveAlgorithm> algorithms = List.of();

  private ReduceSet(PeerConnections connections) {
    this.connections = connections;
    this.gpu = (CudaDevice) connections.communicator().device();
    this.grid = GpuGrid.of(connections.topology());
    int n = connections.nRanks();
    PacketArea ll8 =
        PacketArea.of(PacketKind.LL8, MappedPeers.AREAS_OFFSET, 1, n, LL8_SENT / (n - 1));
    int inLines = n == 2 ? LINES_SENT_TO_ONE : LINES_SENT / (n - 1);
    PacketArea ll128 = PacketArea.of(PacketKind.LL128, ll8.end(), 1, n, inLines);
    PacketArea oneSentinel = PacketArea.of(PacketKind.SENTINEL, ll128.end(), 1, n, inLines);
    PacketArea twoLl8 = twoShots(PacketKind.LL8, oneSentinel.end(), n, LL8_PER_BLOCK);
    PacketArea twoLl128 = twoShots(PacketKind.LL128, twoLl8.end(), n, LL128_PER_BLOCK);
    PacketArea twoSentinel = twoShots(PacketKind.SENTINEL, twoLl128.end(), n, SENTINEL_PER_BLOCK);
    this.oneShot = List.of(ll8, ll128, oneSentinel);
    this.twoShots = List.of(twoLl8, twoLl128, twoSentinel);
    this.stagingOffset = twoSentinel.end();
    this.stagingSlotBytes = Scratch.slotBytes((long) STAGED_PER_BLOCK * grid.maxBlocks() / n);
    // Slots for what comes and for what is handed on.
    this.state = gpu.allocate(stagingOffset + 2 * n * stagingSlotBytes);
    try {
      fill(state, oneSentinel.offset(), oneSentinel.length());
      fill(state, twoSentinel.offset(), twoSentinel.length());
    } catch (RuntimeException | Error e) {
      state.close();
      throw e;
    }
  }

  private PacketArea twoShots(PacketKind kind, long offset, int nRanks, int bytesPerBlock) {
    long bytes = (long) bytesPerBlock * grid.maxBlocks();
    // A part is rounded up to whole cache lines.
    return PacketArea.of(kind, offset, 2, nRanks, bytes / nRanks + 64);
  }

  static CompletableFuture<AlgorithmSet> prepare(PeerConnections connections) {
    // Allocating, filling and loading kernels block, and set-ups go on on threads that must not.
    Executor blocking = Schedulers.boundedElastic()::schedule;
    return CompletableFuture.supplyAsync(() -> new ReduceSet(connections), blocking)
        .thenCompose(
            set ->
                connections
                    .exchange(set.state)
                    .thenApplyAsync(set::bind, blocking)
                    .whenComplete(
                        (done, failure) -> {
                          if (failure != null) {
                            set.close();
                          }
                        }));
  }

  private AlgorithmSet bind(RegisteredMemory[] states) {
    peers = new MappedPeers(connections.topology(), states, connections.communicator().abortFlag());
    List<CollectiveAlgorithm> all = new ArrayList<>();
    oneShot.forEach(area -> all.add(new OneShot(this, area)));
    twoShots.forEach(area -> all.add(new TwoShots(this, area)));
    if (connections.topology().computeCapability() >= BulkReduce.LEAST_CAPABILITY) {
      all.add(new BulkReduce(this));
    }
    all.add(new PermutedReduce(this, null));
    all.add(new PermutedReduce(this, new Scratch(states, stagingOffset, stagingSlotBytes, true)));
    all.add(new CopyReduce(this));
    algorithms = List.copyOf(all);
    return this;
  }

  @Override
  public CompletableFuture<Void> reserve(long bytes) {
    long size = ScratchSpace.sizeFor(bytes, grid);
    if (spaces.stream().anyMatch(space -> space.bytes() >= size) || size == 0) {
      return CompletableFuture.completedFuture(null);
    }
    return ScratchSpace.create(connections, size, grid).thenAccept(this::add);
  }

  /** Closes it instead where this was closed while it was made. */
  private void add(ScratchSpace space) {
    synchronized (this) {
      if (!closed) {
        List<ScratchSpace> more = new ArrayList<>(spaces);
        more.add(space);
        spaces = List.copyOf(more);
        return;
      }
    }
    space.close();
  }

  /**
   * The scratch for a call on a registered buffer: the oldest that is large enough for that buffer.
   * It was there when the buffer was registered, so every rank chooses the same, whatever has been
   * registered since.
   *
   * @return null if there is none
   */
  ScratchSpace scratch(BoundCall call) {
    Registration registration =
        call.isOutputRegistered() ? call.outputRegistration() : call.inputRegistration();
    if (registration != null) {
      long size = ScratchSpace.sizeFor(registration.buffer().size(), grid);
      List<ScratchSpace> now = spaces;
      for (int i = 0; i < now.size() && size > 0; i++) {
        if (now.get(i).bytes() >= size) {
          return now.get(i);
        }
      }
    }
    return null;
  }

  /** Makes an area of sentinels empty; blocks until it is. */
  static void fill(DeviceBuffer buffer, long offset, long length) {
    ByteBuffer ones = ByteBuffer.allocateDirect((int) Math.min(length, FILL_BYTES));
    while (ones.hasRemaining()) {
      ones.put(SENTINEL);
    }
    for (long at = 0; at < length; at += ones.capacity()) {
      ones.clear().limit((int) Math.min(ones.capacity(), length - at));
      buffer.upload(offset + at, ones);
    }
  }

  /** A kernel for each type that packets of the kind can carry. */
  GpuKernels kernels(String name, PacketKind kind) {
    return kernels(name, kind, 0);
  }

  /** The same, with dynamic shared memory for each block. */
  GpuKernels kernels(String name, PacketKind kind, int sharedBytes) {
    List<DataType> types =
        Arrays.stream(DataType.values())
            .filter(
                type ->
                    switch (kind) {
                      case LL8 -> type.size() <= Integer.BYTES;
                      case LL128 -> true;
                      case SENTINEL -> type.isFloatingPoint();
                    })
            .toList();
    return GpuKernels.of(gpu, "reduce_" + name, types, sharedBytes);
  }

  /** A kernel that knows of no type. */
  Kernel kernel(String name) {
    return GpuKernels.one(gpu, "reduce_" + name, 0);
  }

  GpuGrid grid() {
    return grid;
  }

  MappedPeers peers() {
    return peers;
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
    spaces.forEach(ScratchSpace::close);
    state.close();
  }
}
