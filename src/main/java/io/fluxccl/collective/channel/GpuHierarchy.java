// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.channel;

import io.fluxccl.DataType;
import io.fluxccl.collective.Collective;
import io.fluxccl.collective.CollectiveAlgorithm;
import io.fluxccl.collective.KernelStruct;
import io.fluxccl.collective.RankTopology;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.Kernel;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.device.cuda.CudaKernel;
import java.util.EnumMap;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;

/** Hierarchical collectives on GPUs: kernels of pipes_hierarchical.cu. */
final class GpuHierarchy implements AutoCloseable {
  private static final int PLAN_BYTES = 104;

  private final GpuAlgorithms gpus;
  private final Hierarchy hierarchy;
  private final DeviceBuffer ranks;
  private final Map<DataType, CudaKernel> allReduces;
  private final Map<Collective, Kernel> others = new EnumMap<>(Collective.class);

  GpuHierarchy(GpuAlgorithms gpus, CudaDevice gpu, RankTopology topology) {
    this.gpus = gpus;
    this.hierarchy = Hierarchy.of(topology);
    this.allReduces = gpus.kernels(PipeAlgorithm.HIERARCHICAL, "hierarchical_all_reduce");
    for (Collective kind : Collective.values()) {
      if (kind != Collective.ALL_REDUCE && PipeAlgorithm.HIERARCHICAL.supports(kind)) {
        others.put(kind, gpus.kernel("hierarchical_" + kind.label().replace('-', '_')));
      }
    }
    this.ranks = rankTable(gpu, topology);
  }

  CollectiveAlgorithm algorithm() {
    return new ChannelAlgorithm(
        PipeAlgorithm.HIERARCHICAL,
        call -> true,
        (stream, bound) -> {
          PartitionPlan call = PartitionPlan.hierarchical(bound, hierarchy);
          Kernel kernel =
              call.kind() == Collective.ALL_REDUCE
                  ? allReduces.get(call.type())
                  : others.get(call.kind());
          gpus.launch(stream, kernel, mostBytes(call), KernelArgs.of(handle(call)));
        });
  }

  /** Returns the most bytes that a rank handles: a part of the buffer, or its share of it. */
  private static long mostBytes(PartitionPlan call) {
    return switch (call.kind()) {
      case ALL_REDUCE, BROADCAST, REDUCE -> call.stride();
      default -> call.size();
    };
  }

  /** Returns {@code HierarchyPlan} of pipe_hierarchical.cuh. */
  private KernelStruct handle(PartitionPlan call) {
    boolean rooted = call.kind() == Collective.BROADCAST || call.kind() == Collective.REDUCE;
    KernelStruct plan = gpus.begin(PLAN_BYTES).putLong(call.input()).putLong(call.output());
    plan.putLong(call.size()).putLong(call.stride());
    plan.putInt(call.type().ordinal()).putInt(GpuAlgorithms.ordinal(call.op()));
    plan.putInt(hierarchy.isSplit(call.size()) ? 1 : 0);
    plan.putInt(rooted ? hierarchy.hostOf(call.root()) : 0);
    plan.putInt(rooted ? hierarchy.placeOf(call.root()) : 0).putInt(0);
    plan.putInt(hierarchy.nLocal()).putInt(hierarchy.localIndex());
    return plan.putInt(hierarchy.hosts()).putInt(hierarchy.railIndex()).putLong(ranks.address());
  }

  /** Allocates {@code Hierarchy::ranks} of pipe_hierarchical.cuh. */
  private DeviceBuffer rankTable(CudaDevice gpu, RankTopology topology) {
    int nRanks = topology.nRanks();
    List<Integer> local = IntStream.of(hierarchy.local()).boxed().toList();
    List<Integer> rail = IntStream.of(hierarchy.rail()).boxed().toList();
    KernelStruct numbers =
        new KernelStruct((local.size() + rail.size() + 3 * nRanks) * Integer.BYTES);
    local.forEach(numbers::putInt);
    rail.forEach(numbers::putInt);
    IntStream.range(0, nRanks).map(local::indexOf).forEach(numbers::putInt);
    IntStream.range(0, nRanks).map(rail::indexOf).forEach(numbers::putInt);
    IntStream.of(hierarchy.ranks()).forEach(numbers::putInt);
    DeviceBuffer table = gpu.allocate(numbers.handleLength());
    try {
      numbers.upload(table, 0);
    } catch (RuntimeException e) {
      table.close();
      throw e;
    }
    return table;
  }

  @Override
  public void close() {
    ranks.close();
  }
}
