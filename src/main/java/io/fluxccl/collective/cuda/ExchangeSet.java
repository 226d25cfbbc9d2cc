// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.cuda;

import io.fluxccl.collective.AlgorithmSet;
import io.fluxccl.collective.BoundCall;
import io.fluxccl.collective.CollectiveAlgorithm;
import io.fluxccl.collective.GpuKernels;
import io.fluxccl.collective.KernelStruct;
import io.fluxccl.collective.PeerConnections;
import io.fluxccl.collective.Registration;
import io.fluxccl.device.AbortFlag;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.device.cuda.CudaKernel;
import io.fluxccl.transport.RegisteredMemory;
import java.util.List;
import java.util.concurrent.CompletableFuture;

/** The algorithms that only move bytes on a lane, and their state, kernels and launches. */
final class ExchangeSet implements AlgorithmSet {
  private static final int WARP_SIZE = 32;

  /** Warps of a block while there are blocks for all warps. */
  private static final int FEW_WARPS = 4;

  private static final int MAX_WARPS = GpuGrid.MAX_THREADS / WARP_SIZE;

  /** Bytes of a part that keep a block of the pushing kernel busy. */
  private static final int PUSH_BLOCK = GpuGrid.MAX_THREADS * 16;

  /** Blocks that copy the own part in parallel to copy engines, and end long before these. */
  private static final int OWN_BLOCKS = 16;

  /** The least bytes for which a sender asks its receiver for the address: one more round trip. */
  private static final long LARGE_MESSAGE = 4 << 20;

  /** Registrations whose addresses kernels can look up; for later ones data goes through rings. */
  private static final int KNOWN_REGISTRATIONS = 1024;

  private final PeerConnections connections;
  private final GpuGrid grid;
  final ExchangeRing ll8;
  final ExchangeRing ll128;
  private final DeviceBuffer state;
  private final DeviceBuffer registrations;
  private final CudaKernel ll8Kernel;
  private final CudaKernel ll128Kernel;
  private final CudaKernel shortLl8Kernel;
  private final CudaKernel shortLl128Kernel;
  private final CudaKernel sendReceiveKernel;
  private final CudaKernel pushKernel;
  private final CudaKernel barrierKernel;
  private final CudaKernel ownKernel;

  // Used by the one thread that enqueues.
  final ExchangeParts parts = new ExchangeParts();
  private MappedPeers peers;
  private ShortExchange shortParts;

  private ExchangeSet(PeerConnections connections) {
    this.connections = connections;
    this.grid = GpuGrid.of(connections.topology());
    CudaDevice gpu = (CudaDevice) connections.communicator().device();
    this.ll8Kernel = GpuKernels.one(gpu, "exchange_ll8", 0);
    this.ll128Kernel = GpuKernels.one(gpu, "exchange_ll128", 0);
    this.shortLl8Kernel = GpuKernels.one(gpu, "exchange_short_ll8", 0);
    this.shortLl128Kernel = GpuKernels.one(gpu, "exchange_short_ll128", 0);
    this.sendReceiveKernel = GpuKernels.one(gpu, "exchange_send_receive", 0);
    this.pushKernel = GpuKernels.one(gpu, "exchange_push", 0);
    this.barrierKernel = GpuKernels.one(gpu, "exchange_meet", 0);
    this.ownKernel = GpuKernels.one(gpu, "exchange_own", 0);
    this.ll8 = ExchangeRing.ll8(MappedPeers.AREAS_OFFSET, connections.nRanks());
    this.ll128 = ExchangeRing.ll128(ll8.offset() + ll8.length(), connections.nRanks());
    this.state = gpu.allocate(ll128.offset() + ll128.length());
    try {
      this.registrations =
          gpu.allocate((long) KNOWN_REGISTRATIONS * MappedPeers.MAX_RANKS * Long.BYTES);
    } catch (RuntimeException | Error e) {
      state.close();
      throw e;
    }
  }

  static CompletableFuture<AlgorithmSet> prepare(PeerConnections connections) {
    ExchangeSet set = new ExchangeSet(connections);
    return connections
        .exchange(set.state)
        .thenApply(set::bind)
        .whenComplete(PeerConnections.onFailure(set::close));
  }

  private AlgorithmSet bind(RegisteredMemory[] states) {
    AbortFlag abort = connections.communicator().abortFlag();
    peers = new MappedPeers(connections.topology(), states, abort);
    shortParts = new ShortExchange(states, connections.rank(), abort);
    return this;
  }

  @Override
  public void registered(Registration registration) {
    if (registration.id() < KNOWN_REGISTRATIONS) {
      KernelStruct addresses = new KernelStruct(MappedPeers.MAX_RANKS * Long.BYTES);
      for (int rank = 0; rank < connections.nRanks(); rank++) {
        addresses.putLong(registration.addressOn(rank));
      }
      addresses.upload(registrations, (long) registration.id() * addresses.handleLength());
    }
  }

  @Override
  public List<CollectiveAlgorithm> algorithms() {
    return List.of(
        PacketExchange.ll8(this),
        PacketExchange.ll128(this),
        new PushExchange(this),
        new SpreadBroadcast(this),
        new CopyExchange(this));
  }

  /** Returns the address of this rank's state. */
  long stateAddress() {
    return state.address();
  }

  /** Enqueues the exchange of {@link #parts} through the rings that they were made for. */
  void launchPackets(DeviceStream stream, BoundCall call, ExchangeRing ring) {
    if (parts.count() == 0 && parts.bytes() == 0) {
      return;
    }
    if (!launchShort(stream, ring)) {
      launch(stream, call, ring, ring == ll8 ? ll8Kernel : ll128Kernel);
    }
  }

  /** Enqueues a send-receive; see {@code PacketExchange::runPair}. */
  void launchSendReceive(DeviceStream stream, BoundCall call) {
    parts.ofSendReceive(
        call, ll128, LARGE_MESSAGE, firstUnits(), registrations.address(), KNOWN_REGISTRATIONS);
    if (parts.bytes() > 0 && !launchShort(stream, ll128)) {
      launch(stream, call, ll128, sendReceiveKernel);
    }
  }

  /**
   * Returns the number of units of a large message that take the ring at once. Half of the sending
   * warps send them, in about the time until the receiver's offer arrives.
   */
  private int firstUnits() {
    return Math.min(grid.maxBlocks() * MAX_WARPS, ll128.slots()) / 4;
  }

  /** Enqueues the exchange of {@link #parts} by {@code exchange_short.cuh}, if that can do it. */
  private boolean launchShort(DeviceStream stream, ExchangeRing ring) {
    if (!shortParts.fill(parts, ring)) {
      return false;
    }
    int rows = parts.maxUnits();
    int nParts = shortParts.nParts();
    int most = grid.shortBlocks() / nParts;
    if (most == 0) {
      return false;
    }
    int warps = FEW_WARPS;
    while (warps < MAX_WARPS && most * warps < rows) {
      warps *= 2;
    }
    int blocks = nParts * Math.max(1, Math.min(most, (rows + warps - 1) / warps));
    CudaKernel kernel = ring == ll8 ? shortLl8Kernel : shortLl128Kernel;
    stream.launch(
        grid.forBlocks(kernel, blocks), blocks, warps * WARP_SIZE, KernelArgs.of(shortParts));
    return true;
  }

  private void launch(DeviceStream stream, BoundCall call, ExchangeRing ring, CudaKernel kernel) {
    // At most half a ring of slots for each part at once, or ranks might wait in a cycle; at least
    // as many warps as parts, which is less.
    long most =
        Math.min((long) grid.maxBlocks() * MAX_WARPS, (long) ring.slots() / 2 * parts.count());
    long warps =
        parts.count() == 0 ? grid.blocksFor(parts.bytes(), PUSH_BLOCK) * (long) MAX_WARPS : 0;
    warps = Math.max(warps, Math.min(most, parts.positions()));
    int blocks = grid.blocksFor(warps, FEW_WARPS);
    int warpsPerBlock = (int) Math.min(MAX_WARPS, (warps + blocks - 1) / blocks);
    // An even number of warps, so that each keeps to one of two parts.
    warpsPerBlock += blocks * warpsPerBlock % 2;
    stream.launch(
        grid.forBlocks(kernel, blocks),
        blocks,
        warpsPerBlock * WARP_SIZE,
        KernelArgs.of(peers.bind(call), parts));
  }

  /**
   * Enqueues stores of {@link #parts} into peers' outputs.
   *
   * @param largest bytes of the largest part on any rank
   * @param inStep whether ranks advance to the next peer together
   */
  void launchPush(DeviceStream stream, BoundCall call, long largest, boolean inStep) {
    stream.launch(
        pushKernel,
        grid.blocksFor(largest, PUSH_BLOCK),
        GpuGrid.MAX_THREADS,
        KernelArgs.of(peers.bind(call), parts, inStep ? 1 : 0));
  }

  /** Enqueues a barrier of all ranks' streams. */
  void launchBarrier(DeviceStream stream, BoundCall call) {
    stream.launch(barrierKernel, 1, WARP_SIZE, KernelArgs.of(peers.bind(call)));
  }

  /** Enqueues the copy of the own part in {@link #parts} alone, by a few blocks. */
  void launchOwn(DeviceStream stream) {
    if (parts.bytes() > 0) {
      stream.launch(
          ownKernel,
          Math.min(OWN_BLOCKS, grid.blocksFor(parts.bytes(), PUSH_BLOCK)),
          GpuGrid.MAX_THREADS,
          KernelArgs.of(parts));
    }
  }

  @Override
  public void close() {
    registrations.close();
    state.close();
  }
}
