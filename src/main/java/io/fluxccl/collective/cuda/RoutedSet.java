// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.cuda;

import io.fluxccl.FluxCclException;
import io.fluxccl.collective.AlgorithmSet;
import io.fluxccl.collective.BoundCall;
import io.fluxccl.collective.CollectiveAlgorithm;
import io.fluxccl.collective.GpuKernels;
import io.fluxccl.collective.KernelStruct;
import io.fluxccl.collective.PeerConnections;
import io.fluxccl.concurrent.Closing;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.PinnedBuffer;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.device.cuda.CudaKernel;
import io.fluxccl.transport.RegisteredMemory;
import java.util.List;
import java.util.concurrent.CompletableFuture;

/** The algorithms of a lane whose kernels read sizes from the device, and their state. */
final class RoutedSet implements AlgorithmSet {
  private static final int WARP_SIZE = 32;
  private static final int FEW_WARPS = 4;
  private static final int MAX_WARPS = GpuGrid.MAX_THREADS / WARP_SIZE;

  private final PeerConnections connections;
  private final CudaDevice gpu;
  private final GpuGrid grid;
  final RouteArea area;
  private final DeviceBuffer state;
  private final PinnedBuffer fault;
  private MappedPeers peers;
  private List<CollectiveAlgorithm> algorithms = List.of();

  private RoutedSet(PeerConnections connections) {
    this.connections = connections;
    this.gpu = (CudaDevice) connections.communicator().device();
    this.grid = GpuGrid.of(connections.topology());
    this.area = RouteArea.of(connections.nRanks());
    this.state = gpu.allocate(area.end());
    try {
      this.fault = gpu.allocatePinned(Long.BYTES);
    } catch (RuntimeException | Error e) {
      state.close();
      throw e;
    }
  }

  static CompletableFuture<AlgorithmSet> prepare(PeerConnections connections) {
    RoutedSet set = new RoutedSet(connections);
    return connections
        .exchange(set.state)
        .thenApply(set::bind)
        .whenComplete(PeerConnections.onFailure(set::close));
  }

  private AlgorithmSet bind(RegisteredMemory[] states) {
    peers = new MappedPeers(connections.topology(), states, connections.communicator().abortFlag());
    algorithms =
        List.of(new RoutedAllToAll(this), new ExpertDispatch(this), new ExpertCombine(this));
    return this;
  }

  /** Loads a kernel. */
  CudaKernel kernel(String name) {
    return GpuKernels.one(gpu, "routed_" + name, 0);
  }

  /** Returns where kernels report what is wrong. */
  long faultAddress() {
    return fault.deviceAddress();
  }

  /**
   * Enqueues a kernel.
   *
   * @param rows how many rows of packets it moves at most, in one slice
   */
  void launch(
      DeviceStream stream, BoundCall call, CudaKernel kernel, KernelStruct task, long rows) {
    int blocks = grid.blocksFor(rows, FEW_WARPS);
    int warps = (int) Math.max(1, Math.min(MAX_WARPS, (rows + blocks - 1) / blocks));
    stream.launch(
        grid.forBlocks(kernel, blocks),
        blocks,
        warps * WARP_SIZE,
        KernelArgs.of(peers.bind(call), task));
  }

  @Override
  public List<CollectiveAlgorithm> algorithms() {
    return algorithms;
  }

  @Override
  public FluxCclException fault() {
    // Pairs with the end of the kernel's launch, before this run's completion.
    return RouteFault.decode(fault.buffer().getLongVolatile(0), connections.rank());
  }

  @Override
  public void close() {
    Closing.all(fault, state);
  }
}
