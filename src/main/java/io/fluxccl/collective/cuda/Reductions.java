// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.cuda;

import io.fluxccl.DataType;
import io.fluxccl.ReduceOp;
import io.fluxccl.collective.BoundCall;
import io.fluxccl.collective.Collective;
import io.fluxccl.collective.GpuKernels;
import io.fluxccl.collective.cuda.GpuAlgorithm.Trait;
import io.fluxccl.collective.cuda.PacketArea.Kind;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.cuda.CudaKernel;
import java.util.ArrayList;
import java.util.EnumSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.Function;
import java.util.function.Predicate;
import java.util.function.ToDoubleFunction;
import java.util.stream.Stream;

/**
 * The algorithms that reduce: their areas in the state, kernels and launches.
 *
 * <p>Estimates are latency plus bytes by rate, in microseconds. They are fitted to measurements on
 * two and four H200, which have kernels of their own, and on eight, in graphs; those of large calls
 * on two and on four. The selector needs the sizes where the curves of two algorithms cross.
 */
final class Reductions implements MappedGpuSet.Region {
  static final double KIB = 1024;

  static final Set<Trait> ANY_LINK = Set.of(Trait.ORDERED);

  // The most bytes that a rank sends in one shot to all peers together; of lines, half as much
  // again to three peers.
  private static final int LL8_SENT = 32 << 10;
  private static final int LINES_SENT = 256 << 10;

  // LINES_SENT for a single peer: two shots would send as much, later.
  private static final int LINES_SENT_TO_ONE = 1 << 20;

  // The most bytes of two shots, for each block; other algorithms are faster from fewer bytes on.
  private static final int LL8_PER_BLOCK = 1 << 10;
  private static final int LL128_PER_BLOCK = 32 << 10;
  private static final int SENTINEL_PER_BLOCK = 64 << 10;

  // Bytes of packets of a group of a row, for each byte of its values.
  private static final int PACKETS_PER_VALUE = 64;

  // Bytes of a slice that goes through scratch: larger ones are little faster.
  private static final int STAGED_PER_BLOCK = 128 << 10;

  // Small launches begin sooner, and rows arrive sooner where few warps share a multiprocessor.
  private static final int BLOCKS_BEFORE_MORE_THREADS = 64;

  /** So many ranks have kernels of their own for sentinel packets. */
  private static final int FOUR = 4;

  /** Warps of a block of kernels that need many registers: {@code reduce.cu}. */
  private static final int NARROW = GpuGrid.MAX_WARPS / 2;

  // Rows of a warp up to which two ranks gain from launches with few enough blocks to overlap.
  private static final long ROWS_TO_OVERLAP = 2;

  /** The compute capability that has bulk copies. */
  private static final int LEAST_BULK_CAPABILITY = 90;

  /** Two pieces of {@code kPieceRows} rows. */
  private static final int BULK_SHARED_BYTES = 2 * 64 * 512;

  private static final int BULK_ROWS_PER_BLOCK = 16;
  private static final int STAGGERED_BYTES_PER_BLOCK = 16 << 10;

  private final MappedGpuSet set;
  private final GpuGrid grid;
  private final List<PacketArea> oneShot;
  private final List<PacketArea> twoShots;
  private final long stagingOffset;
  private final long stagingSlotBytes;
  private MappedPeers peers;

  Reductions(MappedGpuSet set) {
    this.set = set;
    this.grid = set.grid;
    int n = set.nRanks;
    PacketArea ll8 = PacketArea.of(Kind.LL8, MappedPeers.AREAS_OFFSET, 1, n, LL8_SENT / (n - 1));
    int inLines = n == 2 ? LINES_SENT_TO_ONE : LINES_SENT / (n == FOUR ? 2 : n - 1);
    PacketArea ll128 = PacketArea.of(Kind.LL128, ll8.end(), 1, n, inLines);
    PacketArea sentinel = PacketArea.of(Kind.SENTINEL, ll128.end(), 1, n, inLines);
    PacketArea twoLl8 = twoShots(Kind.LL8, sentinel.end(), n, LL8_PER_BLOCK);
    PacketArea twoLl128 = twoShots(Kind.LL128, twoLl8.end(), n, LL128_PER_BLOCK);
    PacketArea twoSentinel = twoShots(Kind.SENTINEL, twoLl128.end(), n, SENTINEL_PER_BLOCK);
    this.oneShot = List.of(ll8, ll128, sentinel);
    this.twoShots = List.of(twoLl8, twoLl128, twoSentinel);
    // After the packets, a packet of 8 bytes for each of them: norm_rows.cuh.
    this.stagingOffset = twoSentinel.end() + twoSentinel.length() / PACKETS_PER_VALUE;
    this.stagingSlotBytes = Scratch.slotBytes((long) STAGED_PER_BLOCK * grid.maxBlocks() / n);
  }

  private PacketArea twoShots(Kind kind, long offset, int nRanks, int bytesPerBlock) {
    long bytes = (long) bytesPerBlock * grid.maxBlocks();
    // A part is rounded up to whole cache lines.
    return PacketArea.of(kind, offset, 2, nRanks, bytes / nRanks + 64);
  }

  /** Slots for inputs and for results follow the packets. */
  @Override
  public long length() {
    return stagingOffset + 2 * set.nRanks * stagingSlotBytes;
  }

  @Override
  public void fill(DeviceBuffer state, long offset) {
    Stream.concat(oneShot.stream(), twoShots.stream())
        .filter(area -> area.kind() == Kind.SENTINEL)
        .forEach(area -> area.fill(state, offset));
  }

  @Override
  public List<GpuAlgorithm> bind(long[] states) {
    peers = set.peers(states);
    List<GpuAlgorithm> all = new ArrayList<>();
    oneShot.forEach(area -> all.add(oneShot(area)));
    twoShots.forEach(area -> all.add(twoShots(area)));
    if (set.topology.computeCapability() >= LEAST_BULK_CAPABILITY) {
      all.add(bulk());
    }
    Scratch.Handle staging = new Scratch.Handle(states, stagingOffset, stagingSlotBytes, true);
    all.add(
        staggered(
            "staggered-direct",
            call -> set.scratch(call) != null && canStoreResults(call),
            Reductions::directMicros,
            call -> set.scratch(call).forSlots));
    all.add(
        staggered(
            "staggered-staged",
            call -> call.call().collective().reduces(),
            Reductions::stagedMicros,
            call -> staging));
    Kernels slices = kernels("slice", Kind.LL128, 0, PacketArea.NONE);
    all.add(new CopyReduce(set, slices, set.kernel("reduce_meet")).algorithm());
    all.addAll(FusedReduce.algorithms(set, peers, states, twoShots.get(twoShots.size() - 1)));
    return all;
  }

  /** A kernel for each type, and its arguments. */
  record Kernels(
      GpuGrid grid, MappedPeers peers, Reduction reduction, Map<DataType, CudaKernel> byType) {
    /** Returns whether there is a kernel for the call's type. */
    boolean have(BoundCall call) {
      return byType.containsKey(call.call().type());
    }

    CudaKernel of(BoundCall call) {
      return byType.get(call.call().type());
    }

    /** Launches the kernel that uses nothing but its region of the state. */
    void launch(DeviceStream stream, BoundCall call, int blocks, int warps) {
      grid.launch(
          stream, of(call), blocks, warps, KernelArgs.of(peers.bind(call), reduction.bind(call)));
    }

    /** Launches the kernel with blocks of most threads and scratch. */
    void launch(DeviceStream stream, BoundCall call, int blocks, Scratch.Handle scratch) {
      stream.launch(
          of(call),
          blocks,
          GpuGrid.MAX_THREADS,
          KernelArgs.of(peers.bind(call), reduction.bind(call), scratch));
    }
  }

  /**
   * Loads a kernel for each type that packets of a kind can carry.
   *
   * @param sharedBytes dynamic shared memory of a block
   * @param area of its packets
   */
  private Kernels kernels(String name, Kind kind, int sharedBytes, PacketArea area) {
    Map<DataType, CudaKernel> byType =
        GpuKernels.byType(set.gpu, "reduce_" + name, kind::carries, sharedBytes);
    return new Kernels(grid, peers, new Reduction(area), byType);
  }

  private static Set<Trait> traits(PacketArea area) {
    return area.kind() == Kind.LL128 ? Set.of(Trait.ORDERED, Trait.NVLINK) : ANY_LINK;
  }

  /** Returns the KiB that a rank sends: its input, and as much again to distribute results. */
  static double sent(BoundCall call) {
    double part = call.totalBytes() / KIB / call.nRanks() * (call.nRanks() - 1);
    return isScatter(call) ? part : 2 * part;
  }

  static boolean isScatter(BoundCall call) {
    return call.call().collective() == Collective.REDUCE_SCATTER;
  }

  static boolean isScatterOfPair(BoundCall call) {
    return call.nRanks() == 2 && isScatter(call);
  }

  /** Returns whether ranks can store a call's results into each other's outputs. */
  static boolean canStoreResults(BoundCall call) {
    return call.call().collective() == Collective.ALL_REDUCE && call.isOutputRegistered()
        || isScatter(call);
  }

  /** Each rank sends its whole input to all others: {@code reduce_one_shot.cuh}. */
  private GpuAlgorithm oneShot(PacketArea area) {
    Kind kind = area.kind();
    String name = kind.label();
    Kernels kernels = kernels("one_shot_" + kernelLabel(kind), kind, 0, area);
    return new GpuAlgorithm(
        "one-shot-" + name,
        traits(area),
        call ->
            call.call().collective().reduces()
                && !isScatter(call)
                && kernels.have(call)
                && area.holds(call.totalBytes()),
        call -> oneShotMicros(kind, call),
        (stream, call) -> launchOneShot(stream, call, kernels, kind));
  }

  /**
   * Returns whether the warps of a call's kernel send a row to all peers, and receive the rows of
   * all peers at once.
   */
  private boolean isOfFour(Kind kind) {
    return kind == Kind.SENTINEL && set.nRanks == FOUR;
  }

  private String kernelLabel(Kind kind) {
    return (isOfFour(kind) ? "four_" : "") + kind.label();
  }

  private static double oneShotMicros(Kind kind, BoundCall call) {
    double sent = call.totalBytes() / KIB * (call.nRanks() - 1);
    if (call.nRanks() == 2) {
      return kind.choose(1.97 + 0.03 * sent, 2.25 + 0.004 * sent, 2.3 + 0.0034 * sent);
    }
    double base = 1.85 + 0.06 * call.nRanks();
    double inLines = call.nRanks() == FOUR ? 0.0065 : 0.004;
    return base + kind.choose(0.0104 * sent, 0.19 + inLines * sent, 0.35 + 0.004 * sent);
  }

  private void launchOneShot(DeviceStream stream, BoundCall call, Kernels kernels, Kind kind) {
    int n = call.nRanks();
    long rows = kind.rows(call.totalBytes());
    if (n > 2 && !isOfFour(kind)) {
      kernels.launch(stream, call, grid.blocksFor(rows, 1), warpsOfMany(rows, n));
      return;
    }
    // Few blocks begin sooner, and may overlap others.
    int warps = GpuGrid.warpsFor(rows, grid.overlapping(), n == 2 ? GpuGrid.MAX_WARPS : NARROW);
    kernels.launch(stream, call, grid.blocksFor(rows, warps), warps);
  }

  /** Returns the warps of a block: one a rank for each row that the block handles. */
  private int warpsOfMany(long rows, int nRanks) {
    int blocks = grid.blocksFor(rows, 1);
    return nRanks * (int) Math.min(GpuGrid.MAX_WARPS / nRanks, (rows + blocks - 1) / blocks);
  }

  /**
   * Each rank sends packets to the owner of each part, which sends packets of the reduced part:
   * {@code reduce_two_shots.cuh}.
   */
  private GpuAlgorithm twoShots(PacketArea area) {
    Kind kind = area.kind();
    String name = kind.label();
    Kernels kernels = kernels("two_shots_" + kernelLabel(kind), kind, 0, area);
    return new GpuAlgorithm(
        "two-shots-" + name,
        traits(area),
        call ->
            call.call().collective().reduces()
                && kernels.have(call)
                && area.holds(Reduction.partBytes(call)),
        call -> twoShotsMicros(kind, call),
        (stream, call) -> launchTwoShots(stream, call, kernels, kind));
  }

  private static double twoShotsMicros(Kind kind, BoundCall call) {
    int n = call.nRanks();
    boolean scatters = isScatter(call);
    double sent = sent(call);
    if (n == 2) {
      double latency = scatters ? 0 : 0.75;
      return kind.choose(
          2.0 + latency + 0.03 * sent,
          2.25 + latency + 0.0034 * sent,
          2.4 + latency / 4 + 0.00292 * sent);
    }
    double more = n == FOUR ? 0.5 : 0;
    double less = scatters ? 0.6 * more : more;
    double rate = n == FOUR && scatters ? 0.0036 : 0.00303;
    return kind.choose(
        (scatters ? 2.15 : 3.4) + more + 0.0104 * sent,
        2.1 + (scatters ? 0.06 : 0.19) * n + more + less + (rate + 0.00027) * sent,
        (scatters ? 2.4 + 0.08 * n : 2.2 + 0.21 * n) + less + rate * sent);
  }

  private void launchTwoShots(DeviceStream stream, BoundCall call, Kernels kernels, Kind kind) {
    // The scatter has the most rows: one for each peer, unless a warp sends to all.
    long rows = kind.rows(Reduction.partBytes(call)) * (isOfFour(kind) ? 1 : call.nRanks() - 1);
    int most = kind == Kind.LL128 || isOfFour(kind) ? NARROW : GpuGrid.MAX_WARPS;
    int warps = GpuGrid.warpsFor(rows, BLOCKS_BEFORE_MORE_THREADS, most);
    int blocks = grid.blocksFor(rows, warps);
    if (call.nRanks() == 2 && rows <= ROWS_TO_OVERLAP * grid.overlapping() * warps) {
      blocks = Math.min(blocks, grid.overlapping());
    }
    kernels.launch(stream, call, blocks, warps);
  }

  /**
   * Each rank sends sentinel packets to the owner of each part, which stores the reduced part by
   * bulk copies: {@code reduce_bulk.cuh}.
   */
  private GpuAlgorithm bulk() {
    Kernels kernels = kernels("bulk", Kind.SENTINEL, BULK_SHARED_BYTES, PacketArea.NONE);
    return new GpuAlgorithm(
        "two-shots-bulk",
        ANY_LINK,
        call -> {
          Scratch scratch = set.scratch(call);
          return scratch != null
              && kernels.have(call)
              && canStoreResults(call)
              && scratch.packets.holds(Reduction.partBytes(call));
        },
        Reductions::bulkMicros,
        (stream, call) -> {
          Scratch scratch = set.scratch(call);
          long rows = scratch.packets.kind().rows(Reduction.partBytes(call));
          kernels.reduction.use(scratch.packets);
          int blocks = grid.blocksFor(rows, BULK_ROWS_PER_BLOCK);
          kernels.launch(stream, call, blocks, scratch.forPackets);
        });
  }

  private static double bulkMicros(BoundCall call) {
    if (!isScatter(call)) {
      return 6.8 + 0.00286 * sent(call);
    }
    int n = call.nRanks();
    // The line through large calls is too low for small ones.
    return Math.max(4.5 + 0.00286 * sent(call), 0.7 * n - 0.9 + (0.0024 + 0.0052 / n) * sent(call));
  }

  // Plain stores, in each step to another peer: reduce_staggered.cuh. The direct algorithm stores
  // into registered outputs. The staged one goes through scratch, and does every call.

  private GpuAlgorithm staggered(
      String name,
      Predicate<BoundCall> supported,
      ToDoubleFunction<BoundCall> micros,
      Function<BoundCall, Scratch.Handle> scratch) {
    Kernels kernels = kernels("staggered", Kind.LL128, 0, PacketArea.NONE);
    return new GpuAlgorithm(
        name,
        ANY_LINK,
        supported,
        micros,
        (stream, call) -> {
          int blocks = grid.blocksFor(Reduction.partBytes(call), STAGGERED_BYTES_PER_BLOCK);
          kernels.launch(stream, call, blocks, scratch.apply(call));
        });
  }

  private static double directMicros(BoundCall call) {
    int peers = call.nRanks() - 1;
    if (isScatterOfPair(call)) {
      return 15 + 0.00305 * sent(call);
    }
    return isScatter(call)
        ? 10 + 1.2 * peers + 0.00305 * sent(call)
        : 4 + 2.2 * peers + 0.0029 * sent(call);
  }

  private static double stagedMicros(BoundCall call) {
    int peers = call.nRanks() - 1;
    return isScatterOfPair(call) ? 14 + 0.0035 * sent(call) : 6 + 3 * peers + 0.0035 * sent(call);
  }

  /**
   * All-reduces whose inputs and sums travel as codes of 8 bits: {@code reduce_quantized.cuh}. All
   * ranks get the same bits. docs/reference/algorithms.md states the error.
   */
  static final class Quantized implements MappedGpuSet.Region {
    private static final Set<DataType> TYPES =
        EnumSet.of(DataType.FLOAT16, DataType.BFLOAT16, DataType.FLOAT32);

    private static final int PHASES = 2;

    /** Memory of all slots. */
    private static final long MOST_BYTES = 16 << 20;

    private static final int MOST_SLOT = 1 << 20;

    /** The elements of a row of packets. */
    private static final int ROW_ELEMENTS = 448;

    private static final double MICROS_PER_KIB = 0.002;

    private final MappedGpuSet set;
    private final PacketArea area;

    Quantized(MappedGpuSet set) {
      this.set = set;
      int slots = 2 * PHASES * set.nRanks;
      int slotBytes = (int) Math.min(MOST_SLOT, Long.highestOneBit(MOST_BYTES / slots));
      this.area = new PacketArea(Kind.LL128, MappedPeers.AREAS_OFFSET, slots, slotBytes);
    }

    @Override
    public long length() {
      return area.end();
    }

    @Override
    public List<GpuAlgorithm> bind(long[] states) {
      MappedPeers peers = set.peers(states);
      return List.of(algorithm("f8e4m3", peers), algorithm("int8", peers));
    }

    private GpuAlgorithm algorithm(String code, MappedPeers peers) {
      Kernels kernels =
          new Kernels(
              set.grid,
              peers,
              new Reduction(area),
              GpuKernels.byType(set.gpu, "quantized_" + code, TYPES::contains, 0));
      return new GpuAlgorithm(
          "quantized-" + code,
          Set.of(Trait.NVLINK, Trait.INEXACT),
          call ->
              call.call().collective() == Collective.ALL_REDUCE
                  && call.call().op() == ReduceOp.SUM
                  && kernels.have(call),
          call -> 3 + MICROS_PER_KIB * sent(call),
          (stream, call) -> launch(stream, call, kernels));
    }

    private void launch(DeviceStream stream, BoundCall call, Kernels kernels) {
      long elements = Reduction.partBytes(call) / call.call().type().size();
      long rows = (elements + ROW_ELEMENTS - 1) / ROW_ELEMENTS;
      int blocks = set.grid.blocksFor(Math.min(rows, area.kind().rows(area.slotBytes())), 1);
      kernels.launch(stream, call, blocks, GpuGrid.warpsFor(rows, blocks));
    }
  }
}
