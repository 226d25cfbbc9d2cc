// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.cuda;

import static io.fluxccl.collective.cuda.GpuGrid.WARP_SIZE;

import io.fluxccl.collective.BoundCall;
import io.fluxccl.collective.Collective;
import io.fluxccl.collective.CollectiveCall;
import io.fluxccl.collective.KernelStruct;
import io.fluxccl.collective.Registration;
import io.fluxccl.collective.cuda.GpuAlgorithm.Trait;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.cuda.CudaKernel;
import io.fluxccl.device.cuda.CudaStream;
import java.util.EnumSet;
import java.util.List;
import java.util.Set;

/**
 * The algorithms that only move bytes, their state, kernels and launches. Estimates are in
 * microseconds, rates in bytes per microsecond, fitted to 8 x H200.
 */
final class Exchanges implements MappedGpuSet.Region {
  /** Time of a launch that sends and receives packets of 120 bytes. */
  static final double LL128_LATENCY = 1.95;

  private static final double LL128_RATE = 265_000;

  /** Rate of the link of two ranks for packets of {@code exchange_short.cuh}. */
  private static final double SHORT_RATE = 285_000;

  private static final double LL8_LATENCY = 1.8;
  private static final double LL8_RATE = 100_000;

  /** Time of a launch with two barriers of all ranks. */
  private static final double PUSH_LATENCY = 3.9;

  /** Rate of a link for stores to one peer after the other. */
  private static final double PUSH_RATE = 331_000;

  /** Rate of a link for stores in step, once the steps are long. */
  private static final double STEPS_RATE = 358_500;

  /** Time that each further peer costs in step. */
  private static final double STEP_LATENCY = 0.7;

  /** Time of two barriers in launches of their own. */
  private static final double BARRIERS_LATENCY = 12;

  /** Time of a copy of any length. */
  private static final double COPY_LATENCY = 9;

  /** Rate of a link for a copy engine. */
  private static final double COPY_RATE = 396_600;

  private static final Set<Trait> ANY_LINK = Set.of();
  private static final Set<Trait> LINES = Set.of(Trait.NVLINK);
  private static final Set<Trait> COPIES = Set.of(Trait.COPY_ENGINES);

  private static final Set<Collective> PUSHED =
      EnumSet.of(Collective.ALL_GATHER, Collective.ALL_TO_ALL, Collective.BROADCAST);

  /** Bytes of a part that keep a block of the pushing kernel busy. */
  private static final int PUSH_BLOCK = GpuGrid.MAX_THREADS * 16;

  /** Blocks that copy the own part in parallel to copy engines, and end long before these. */
  private static final int OWN_BLOCKS = 16;

  private static final int REGISTRATION_LENGTH = MappedPeers.MAX_RANKS * Long.BYTES;

  /** Slices of a broadcast in two steps begin at multiples of this number of bytes. */
  private static final int SLICE_ALIGNMENT = 128;

  /** The rings of one kind of packets, and their kernels for any and for short messages. */
  private record Packets(ExchangeRing ring, CudaKernel kernel, CudaKernel shortKernel) {}

  private final MappedGpuSet set;
  private final GpuGrid grid;
  private final ExchangeRing ll8Ring;
  private final ExchangeRing ll128Ring;

  // Used by the one thread that enqueues.
  private final ExchangeParts parts = new ExchangeParts();
  private ShortExchange shortParts;
  private MappedPeers peers;
  private long ownState;

  private Packets ll8;
  private Packets ll128;
  private CudaKernel sendReceiveKernel;
  private CudaKernel pushKernel;
  private CudaKernel barrierKernel;
  private CudaKernel ownKernel;

  Exchanges(MappedGpuSet set) {
    this.set = set;
    this.grid = set.grid;
    this.ll8Ring = ExchangeRing.ll8(MappedPeers.AREAS_OFFSET, set.nRanks);
    this.ll128Ring = ExchangeRing.ll128(ll8Ring.end(), set.nRanks);
  }

  /** Returns the bytes of the rings; the addresses of registered buffers follow them. */
  @Override
  public long length() {
    return ll128Ring.end() + (long) ExchangeParts.KNOWN_REGISTRATIONS * REGISTRATION_LENGTH;
  }

  @Override
  public List<GpuAlgorithm> bind(long[] states) {
    peers = set.peers(states);
    shortParts = new ShortExchange(states, set.rank, set.abort());
    ownState = states[set.rank];
    sendReceiveKernel = set.kernel("exchange_send_receive");
    pushKernel = set.kernel("exchange_push");
    barrierKernel = set.kernel("exchange_meet");
    ownKernel = set.kernel("exchange_own");
    ll8 = packets("ll8", ll8Ring);
    ll128 = packets("ll128", ll128Ring);
    return List.of(
        new GpuAlgorithm("exchange-ll8", ANY_LINK, this::isForLl8, this::ll8Micros, this::byLl8),
        new GpuAlgorithm(
            "exchange-ll128", LINES, this::onlyMoves, this::ll128Micros, this::byLl128),
        new GpuAlgorithm("exchange-push", ANY_LINK, this::canPush, this::pushMicros, this::push),
        new GpuAlgorithm(
            "exchange-spread", LINES, this::canSpread, this::spreadMicros, this::spread),
        new GpuAlgorithm("exchange-copy", COPIES, this::canCopy, this::copyMicros, this::copy));
  }

  private Packets packets(String kind, ExchangeRing ring) {
    return new Packets(ring, set.kernel("exchange_" + kind), set.kernel("exchange_short_" + kind));
  }

  /**
   * Writes the addresses of a registered buffer where kernels look them up.
   *
   * @param offset of this region in this rank's state
   */
  void register(Registration registration, DeviceBuffer state, long offset) {
    if (registration.id() < ExchangeParts.KNOWN_REGISTRATIONS) {
      KernelStruct addresses = new KernelStruct(REGISTRATION_LENGTH);
      for (int rank = 0; rank < set.nRanks; rank++) {
        addresses.putLong(registration.addressOn(rank));
      }
      addresses.upload(
          state, offset + ll128Ring.end() + (long) registration.id() * REGISTRATION_LENGTH);
    }
  }

  // Packets through rings: exchange_packets.cuh. Ranks that have nothing to exchange don't wait for
  // each other.

  private boolean onlyMoves(BoundCall call) {
    Collective what = call.call().collective();
    return !what.reduces() && what != Collective.FUSED_ALL_REDUCE;
  }

  /** Only one algorithm may support a call with sizes that peers don't know: that of LL128. */
  private boolean isForLl8(BoundCall call) {
    Collective what = call.call().collective();
    boolean known = what.isUniform() || what == Collective.BARRIER;
    return onlyMoves(call) && known && call.call().countBytes() <= ll8Ring.eagerBytes();
  }

  private double ll8Micros(BoundCall call) {
    return LL8_LATENCY + busiestLink(call) / LL8_RATE;
  }

  private double ll128Micros(BoundCall call) {
    long bytes = busiestLink(call);
    double rate = call.nRanks() == 2 && ll128Ring.isShort(bytes) ? SHORT_RATE : LL128_RATE;
    return LL128_LATENCY + bytes / rate;
  }

  /** Returns the bytes that the busiest rank sends or receives; 0 if ranks can't know. */
  private static long busiestLink(BoundCall call) {
    long peers = call.nRanks() - 1L;
    return switch (call.call().collective()) {
      case ALL_TO_ALL_V, SEND_RECEIVE, BARRIER -> 0;
      default -> peers * call.call().countBytes();
    };
  }

  private void byLl8(DeviceStream stream, BoundCall call) {
    exchange(stream, call, ll8);
  }

  private void byLl128(DeviceStream stream, BoundCall call) {
    if (call.call().collective() == Collective.SEND_RECEIVE) {
      sendReceive(stream, call);
    } else {
      exchange(stream, call, ll128);
    }
  }

  private void exchange(DeviceStream stream, BoundCall call, Packets packets) {
    parts.of(call, packets.ring, ownState);
    launchPackets(stream, call, packets);
  }

  /** Enqueues the exchange of {@link #parts} through the rings that they were made for. */
  private void launchPackets(DeviceStream stream, BoundCall call, Packets packets) {
    boolean isEmpty = parts.count() == 0 && parts.bytes() == 0;
    if (!isEmpty && !launchShort(stream, packets)) {
      launch(stream, call, packets.ring, packets.kernel);
    }
  }

  /** Enqueues a send-receive; see {@code PacketExchange::runPair}. */
  private void sendReceive(DeviceStream stream, BoundCall call) {
    long known = ownState + ll128Ring.end();
    parts.ofSendReceive(call, ll128Ring, firstUnits(), known);
    if (parts.bytes() > 0 && !launchShort(stream, ll128)) {
      launch(stream, call, ll128Ring, sendReceiveKernel);
    }
  }

  /**
   * Returns the number of units of a large message that take the ring at once. Half of the sending
   * warps send them, in about the time until the receiver's offer arrives.
   */
  private int firstUnits() {
    return Math.min(grid.maxBlocks() * GpuGrid.MAX_WARPS, ll128Ring.slots()) / 4;
  }

  /** Enqueues the exchange of {@link #parts} by {@code exchange_short.cuh}, if that can do it. */
  private boolean launchShort(DeviceStream stream, Packets packets) {
    if (!shortParts.fill(parts, packets.ring)) {
      return false;
    }
    int rows = parts.maxUnits();
    int nParts = shortParts.nParts();
    int most = grid.shortBlocks() / nParts;
    if (most == 0) {
      return false;
    }
    int warps = GpuGrid.warpsFor(rows, most, GpuGrid.MAX_WARPS);
    int blocks = nParts * Math.max(1, Math.min(most, (rows + warps - 1) / warps));
    grid.launch(stream, packets.shortKernel, blocks, warps, KernelArgs.of(shortParts));
    return true;
  }

  private void launch(DeviceStream stream, BoundCall call, ExchangeRing ring, CudaKernel kernel) {
    // At most half a ring of slots for each part at once, or ranks might wait in a cycle; at least
    // as many warps as parts, which is less.
    long inRing = (long) ring.slots() / 2 * parts.count();
    long most = Math.min((long) grid.maxBlocks() * GpuGrid.MAX_WARPS, inRing);
    long own = parts.count() == 0 ? pushBlocks(parts.bytes()) * (long) GpuGrid.MAX_WARPS : 0;
    long warps = Math.max(own, Math.min(most, parts.positions()));
    int blocks = grid.blocksFor(warps, GpuGrid.FEW_WARPS);
    int warpsPerBlock = (int) Math.min(GpuGrid.MAX_WARPS, (warps + blocks - 1) / blocks);
    // An even number of warps, so that each keeps to one of two parts.
    warpsPerBlock += blocks * warpsPerBlock % 2;
    grid.launch(stream, kernel, blocks, warpsPerBlock, KernelArgs.of(peers.bind(call), parts));
  }

  private int pushBlocks(long bytes) {
    return grid.blocksFor(bytes, PUSH_BLOCK);
  }

  // Stores into the peers' registered outputs: exchange_push.cuh.

  /**
   * Returns whether ranks can store into the peers' outputs. False for a gather, where only the
   * root has an output, and for a scatter, where the root may have its output at another place. An
   * all-to-all in place would overwrite inputs before they are read.
   */
  private boolean canPush(BoundCall call) {
    Collective what = call.call().collective();
    return PUSHED.contains(what)
        && call.isOutputRegistered()
        && !(what == Collective.ALL_TO_ALL && call.isInPlace());
  }

  private double pushMicros(BoundCall call) {
    long bytes = busiestLink(call);
    return Math.min(PUSH_LATENCY + bytes / PUSH_RATE, inStepMicros(call, bytes));
  }

  private static double inStepMicros(BoundCall call, long bytes) {
    return PUSH_LATENCY + STEP_LATENCY * (call.nRanks() - 2) + bytes / STEPS_RATE;
  }

  /** Ranks advance to the next peer together if every rank writes to every other. */
  private static boolean isInStep(BoundCall call) {
    long bytes = busiestLink(call);
    return !call.call().collective().hasRoot()
        && inStepMicros(call, bytes) < PUSH_LATENCY + bytes / PUSH_RATE;
  }

  private void push(DeviceStream stream, BoundCall call) {
    parts.of(call, null, ownState);
    launchPush(stream, call, call.call().countBytes(), isInStep(call));
  }

  /**
   * Enqueues stores of {@link #parts} into peers' outputs.
   *
   * @param largest bytes of the largest part on any rank
   * @param inStep whether ranks advance to the next peer together
   */
  private void launchPush(DeviceStream stream, BoundCall call, long largest, boolean inStep) {
    KernelArgs args = KernelArgs.of(peers.bind(call), parts, inStep ? 1 : 0);
    stream.launch(pushKernel, pushBlocks(largest), GpuGrid.MAX_THREADS, args);
  }

  // A broadcast in two steps: the root sends every rank a slice, and every rank sends its slice to
  // the others. So the root's link carries the data once, not once for each rank. Both steps use
  // packets, or stores if outputs are registered and the slices large.

  private boolean canSpread(BoundCall call) {
    return call.call().collective() == Collective.BROADCAST && call.nRanks() > 2;
  }

  private static long slice(BoundCall call) {
    long each = (call.call().countBytes() + call.nRanks() - 1) / call.nRanks();
    return (each + SLICE_ALIGNMENT - 1) / SLICE_ALIGNMENT * SLICE_ALIGNMENT;
  }

  private double spreadMicros(BoundCall call) {
    return Math.min(
        byPackets(call), call.isOutputRegistered() ? byStores(call) : Double.POSITIVE_INFINITY);
  }

  private static double byPackets(BoundCall call) {
    return 2 * (LL128_LATENCY + slice(call) * (call.nRanks() - 1) / LL128_RATE);
  }

  private static double byStores(BoundCall call) {
    return 2 * (PUSH_LATENCY + slice(call) * (call.nRanks() - 1) / PUSH_RATE);
  }

  private void spread(DeviceStream stream, BoundCall call) {
    boolean stores = call.isOutputRegistered() && byStores(call) < byPackets(call);
    scatterSlices(call, stores);
    launchSlices(stream, call, stores);
    gatherSlices(call, stores);
    launchSlices(stream, call, stores);
  }

  private void launchSlices(DeviceStream stream, BoundCall call, boolean stores) {
    if (stores) {
      launchPush(stream, call, slice(call), false);
    } else {
      launchPackets(stream, call, ll128);
    }
  }

  private static long begin(BoundCall call, int rank) {
    return Math.min(call.call().countBytes(), slice(call) * rank);
  }

  private static long length(BoundCall call, int rank) {
    return begin(call, rank + 1) - begin(call, rank);
  }

  /** Fills in a slice for each rank, from the root; of stores, the writer knows the address. */
  private void scatterSlices(BoundCall call, boolean stores) {
    CollectiveCall what = call.call();
    parts.clear(stores ? null : ll128Ring);
    int rank = call.rank();
    if (rank != what.root()) {
      if (!stores) {
        long to = what.output().address() + begin(call, rank);
        parts.add(what.root(), 0, 0, to, length(call, rank));
      }
      return;
    }
    for (int ahead = 1; ahead < call.nRanks(); ahead++) {
      int peer = (rank + ahead) % call.nRanks();
      long from = what.input().address() + begin(call, peer);
      long to = stores ? call.outputOn(peer) + begin(call, peer) : 0;
      parts.add(peer, from, length(call, peer), to, 0);
    }
    parts.own(what.input().address(), what.output().address(), what.countBytes());
  }

  /** Fills in this rank's slice for each rank but the root, which has all slices already. */
  private void gatherSlices(BoundCall call, boolean stores) {
    CollectiveCall what = call.call();
    int rank = call.rank();
    long output = what.output().address();
    parts.clear(stores ? null : ll128Ring);
    for (int ahead = 1; ahead < call.nRanks(); ahead++) {
      int peer = (rank + ahead) % call.nRanks();
      long to = stores ? call.outputOn(peer) + begin(call, rank) : output + begin(call, peer);
      parts.add(
          peer,
          output + begin(call, rank),
          peer == what.root() ? 0 : length(call, rank),
          to,
          stores || rank == what.root() ? 0 : length(call, peer));
    }
  }

  // Copy engines write into the peers' registered outputs, for the largest all-gathers and
  // all-to-alls. They use a link better than stores do, but each copy costs some microseconds.
  // Copies run one after the other, because engines that write to several peers at once get half
  // the rate; each rank begins with another peer. A few blocks copy the own part in parallel.
  // Engines don't see an abort: enqueued copies are made, into memory that stays mapped until then.
  //
  //   barrier   copy to rank + 1   copy to rank + 2   ...   barrier
  //   branch: own part

  private boolean canCopy(BoundCall call) {
    return canPush(call) && call.call().collective() != Collective.BROADCAST;
  }

  private double copyMicros(BoundCall call) {
    return BARRIERS_LATENCY + COPY_LATENCY * (call.nRanks() - 1) + busiestLink(call) / COPY_RATE;
  }

  private void copy(DeviceStream stream, BoundCall call) {
    CollectiveCall what = call.call();
    int rank = call.rank();
    parts.clear(null).own(call);
    DeviceStream beside = stream.branch("exchange-own");
    beside.waitFor(stream);
    launchOwn(beside);
    launchBarrier(stream, call);
    for (int ahead = 1; ahead < call.nRanks(); ahead++) {
      int peer = (rank + ahead) % call.nRanks();
      ((CudaStream) stream)
          .copyAsync(
              call.outputOn(peer) + what.receiveOffset(rank),
              what.input().address() + what.sendOffset(peer),
              what.sendBytes(rank, peer));
    }
    stream.waitFor(beside);
    launchBarrier(stream, call);
  }

  /** Enqueues a barrier of all ranks' streams. */
  private void launchBarrier(DeviceStream stream, BoundCall call) {
    stream.launch(barrierKernel, 1, WARP_SIZE, KernelArgs.of(peers.bind(call)));
  }

  /** Enqueues the copy of the own part in {@link #parts} alone, by a few blocks. */
  private void launchOwn(DeviceStream stream) {
    if (parts.bytes() > 0) {
      int blocks = Math.min(OWN_BLOCKS, pushBlocks(parts.bytes()));
      stream.launch(ownKernel, blocks, GpuGrid.MAX_THREADS, KernelArgs.of(parts));
    }
  }
}
