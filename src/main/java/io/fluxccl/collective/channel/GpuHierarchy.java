package io.fluxccl.collective.channel;

import io.fluxccl.DataType;
import io.fluxccl.collective.Collective;
import io.fluxccl.collective.CollectiveAlgorithm;
import io.fluxccl.collective.RankTopology;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.Kernel;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.cuda.CudaDevice;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.EnumMap;
import java.util.Map;

/** Hierarchical collectives on GPUs: kernels of pipes_hierarchical.cu. */
final class GpuHierarchy implements AutoCloseable {
  private static final int PLAN_BYTES = 104;

  private final GpuAlgorithms gpus;
  private final Hierarchy hierarchy;
  private final DeviceBuffer ranks;
  private final Map<DataType, Kernel> allReduces;
  private final Map<Collective, Kernel> others = new EnumMap<>(Collective.class);

  GpuHierarchy(GpuAlgorithms gpus, CudaDevice gpu, RankTopology topology) {
    this.gpus = gpus;
    this.hierarchy = Hierarchy.of(topology);
    this.allReduces = gpus.kernels(Method.HIERARCHICAL, "hierarchical_all_reduce");
    for (Collective kind : Collective.values()) {
      if (kind != Collective.ALL_REDUCE && Method.HIERARCHICAL.supports(kind)) {
        others.put(kind, gpus.kernel("hierarchical_" + kind.label().replace('-', '_')));
      }
    }
    this.ranks = rankTable(gpu, topology);
  }

  CollectiveAlgorithm algorithm() {
    return new ChannelAlgorithm(
        Method.HIERARCHICAL,
        call -> true,
        (stream, bound) -> {
          PartsPlan call = PartsPlan.hierarchical(bound, hierarchy);
          Kernel kernel =
              call.kind() == Collective.ALL_REDUCE
                  ? allReduces.get(call.type())
                  : others.get(call.kind());
          gpus.launch(stream, kernel, mostBytes(call), KernelArgs.of(handle(call)));
        });
  }

  /** Returns the most bytes that a rank handles: a part of the buffer, or its share of it. */
  private static long mostBytes(PartsPlan call) {
    return switch (call.kind()) {
      case ALL_REDUCE, BROADCAST, REDUCE -> call.stride();
      default -> call.size();
    };
  }

  /** Returns {@code HierarchyPlan} of pipe_hierarchical.cuh. */
  private KernelPlan handle(PartsPlan call) {
    boolean rooted = call.kind() == Collective.BROADCAST || call.kind() == Collective.REDUCE;
    return gpus.begin(PLAN_BYTES)
        .put(call.input())
        .put(call.output())
        .put(call.size())
        .put(call.stride())
        .put(call.type().ordinal())
        .put(GpuAlgorithms.ordinal(call.op()))
        .put(hierarchy.isSplit(call.size()) ? 1 : 0)
        .put(rooted ? hierarchy.hostOf(call.root()) : 0)
        .put(rooted ? hierarchy.placeOf(call.root()) : 0)
        .put(0)
        .put(hierarchy.nLocal())
        .put(hierarchy.localIndex())
        .put(hierarchy.hosts())
        .put(hierarchy.railIndex())
        .put(ranks.address());
  }

  /** Allocates {@code Hierarchy::ranks} of pipe_hierarchical.cuh. */
  private DeviceBuffer rankTable(CudaDevice gpu, RankTopology topology) {
    int nRanks = topology.nRanks();
    int[] placeOf = new int[nRanks];
    int[] hostOf = new int[nRanks];
    for (int rank = 0; rank < nRanks; rank++) {
      placeOf[rank] = indexOf(hierarchy.local(), rank);
      hostOf[rank] = indexOf(hierarchy.rail(), rank);
    }
    int[][] sections = {hierarchy.local(), hierarchy.rail(), placeOf, hostOf, hierarchy.ranks()};
    int length = hierarchy.nLocal() + hierarchy.hosts() + 3 * nRanks;
    ByteBuffer bytes =
        ByteBuffer.allocateDirect(length * Integer.BYTES).order(ByteOrder.nativeOrder());
    for (int[] section : sections) {
      for (int number : section) {
        bytes.putInt(number);
      }
    }
    DeviceBuffer table = gpu.allocate(bytes.capacity());
    try {
      table.upload(0, bytes.flip());
    } catch (RuntimeException e) {
      table.close();
      throw e;
    }
    return table;
  }

  private static int indexOf(int[] ranks, int rank) {
    for (int i = 0; i < ranks.length; i++) {
      if (ranks[i] == rank) {
        return i;
      }
    }
    return -1;
  }

  @Override
  public void close() {
    ranks.close();
  }
}
