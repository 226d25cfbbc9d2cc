// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.cuda;

import io.fluxccl.DataType;
import io.fluxccl.collective.AlgorithmSet;
import io.fluxccl.collective.CollectiveAlgorithm;
import io.fluxccl.collective.GpuKernels;
import io.fluxccl.collective.PeerConnections;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.device.cuda.CudaKernel;
import io.fluxccl.transport.RegisteredMemory;
import java.util.EnumSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;

/** The quantized all-reduces of a lane, and the state that they share. */
final class QuantizedSet implements AlgorithmSet {
  private static final Set<DataType> TYPES =
      EnumSet.of(DataType.FLOAT16, DataType.BFLOAT16, DataType.FLOAT32);

  private static final int PHASES = 2;

  /** Memory of all slots. */
  private static final long MOST_BYTES = 16 << 20;

  private static final int MOST_SLOT = 1 << 20;

  private final PeerConnections connections;
  private final CudaDevice gpu;
  final GpuGrid grid;
  final PacketArea area;
  private final DeviceBuffer state;
  private List<CollectiveAlgorithm> algorithms = List.of();
  MappedPeers peers;

  private QuantizedSet(PeerConnections connections) {
    this.connections = connections;
    this.gpu = (CudaDevice) connections.communicator().device();
    this.grid = GpuGrid.of(connections.topology());
    int slots = 2 * PHASES * connections.nRanks();
    int slotBytes = (int) Math.min(MOST_SLOT, Long.highestOneBit(MOST_BYTES / slots));
    this.area = new PacketArea(PacketArea.Kind.LL128, MappedPeers.AREAS_OFFSET, slots, slotBytes);
    this.state = gpu.allocate(area.end());
  }

  static CompletableFuture<AlgorithmSet> prepare(PeerConnections connections) {
    QuantizedSet set = new QuantizedSet(connections);
    return connections
        .exchange(set.state)
        .thenApply(set::bind)
        .whenComplete(PeerConnections.onFailure(set::close));
  }

  private AlgorithmSet bind(RegisteredMemory[] states) {
    peers = new MappedPeers(connections.topology(), states, connections.communicator().abortFlag());
    algorithms =
        List.of(
            new QuantizedAllReduce(this, "f8e4m3", kernels("f8e4m3")),
            new QuantizedAllReduce(this, "int8", kernels("int8")));
    return this;
  }

  private Map<DataType, CudaKernel> kernels(String code) {
    return GpuKernels.byType(gpu, "quantized_" + code, TYPES::contains, 0);
  }

  @Override
  public List<CollectiveAlgorithm> algorithms() {
    return algorithms;
  }

  @Override
  public void close() {
    state.close();
  }
}
