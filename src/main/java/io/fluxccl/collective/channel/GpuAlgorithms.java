// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.channel;

import io.fluxccl.DataType;
import io.fluxccl.ReduceOp;
import io.fluxccl.channel.ProxyChannel;
import io.fluxccl.channel.ProxyChannelDescriptor;
import io.fluxccl.collective.Collective;
import io.fluxccl.collective.CollectiveAlgorithm;
import io.fluxccl.collective.GpuKernels;
import io.fluxccl.collective.KernelStruct;
import io.fluxccl.collective.RankTopology;
import io.fluxccl.collective.channel.PipeAlgorithm.ChannelAlgorithm;
import io.fluxccl.concurrent.Closing;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.Kernel;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.device.cuda.CudaKernel;
import io.fluxccl.semaphore.SemaphoreDescriptor;
import java.util.ArrayList;
import java.util.EnumMap;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;

/** The methods on GPUs: kernels of pipes.cu, each of whose blocks is a lane. */
final class GpuAlgorithms implements AutoCloseable {
  /** {@code kThreads} of pipe.cuh. */
  private static final int THREADS = 512;

  /** {@code ListedParts::kMost} of pipe_exchange.cuh. */
  private static final int MOST_LISTED = 128;

  private static final int EXCHANGE_BYTES = 232;
  private static final int REDUCTION_BYTES = 64;

  private final CudaDevice gpu;
  private final PipeLayout layout;
  private final RankTopology topology;
  private final DeviceBuffer table;
  private final List<CollectiveAlgorithm> algorithms = new ArrayList<>();
  private GpuHierarchy hierarchy;

  GpuAlgorithms(Pipes pipes) {
    this.gpu = (CudaDevice) pipes.peers.communicator().device();
    this.layout = pipes.layout;
    this.topology = pipes.peers.topology();
    this.table = gpu.allocate(PipeTable.bytes(layout));
    try {
      PipeTable.write(pipes, table);
      addExchange();
      // Used with the kernels for mapped memory, within a host: all of these keep rank order.
      if (!topology.allMapped() || topology.hasNvlink()) {
        addRing();
      }
      if (Hierarchy.isPossible(topology)) {
        hierarchy = new GpuHierarchy(this, gpu, topology);
        algorithms.add(hierarchy.algorithm());
      }
    } catch (RuntimeException | Error e) {
      close();
      throw e;
    }
  }

  List<CollectiveAlgorithm> all() {
    return algorithms;
  }

  /** Returns a kernel for each type of element that a method reduces. */
  Map<DataType, CudaKernel> kernels(PipeAlgorithm method, String name) {
    return GpuKernels.byType(gpu, "pipe_" + name, method::reduces, 0);
  }

  CudaKernel kernel(String name) {
    return GpuKernels.one(gpu, "pipe_" + name, 0);
  }

  private void addExchange() {
    Map<DataType, CudaKernel> kernels = kernels(PipeAlgorithm.ALL_PAIRS, "exchange");
    CudaKernel listed = kernel("exchange_listed");
    algorithms.add(
        new ChannelAlgorithm(
            PipeAlgorithm.ALL_PAIRS,
            layout,
            call ->
                call.call().collective() != Collective.ALL_TO_ALL_V || call.nRanks() <= MOST_LISTED,
            (stream, call) -> {
              Exchange exchange = new Exchange(call);
              KernelStruct plan = handle(exchange);
              if (exchange.give.ends() != null) {
                launch(stream, listed, exchange.most(), KernelArgs.of(plan, listedParts(exchange)));
              } else {
                launch(
                    stream,
                    kernels.get(exchange.reduces ? exchange.type : DataType.UINT8),
                    exchange.most(),
                    KernelArgs.of(plan));
              }
            }));
  }

  private void addRing() {
    Map<DataType, CudaKernel> kernels = kernels(PipeAlgorithm.RING, "ring");
    algorithms.add(
        new ChannelAlgorithm(
            PipeAlgorithm.RING,
            layout,
            call -> true,
            (stream, call) -> {
              PartitionPlan ring = PartitionPlan.ring(call);
              launch(stream, kernels.get(ring.type()), ring.stride(), KernelArgs.of(handle(ring)));
            }));
  }

  /** Launches a kernel with as many lanes as share the most bytes of any pair. */
  void launch(DeviceStream stream, Kernel kernel, long most, KernelArgs args) {
    stream.launch(kernel, layout.lanesOf(most), THREADS, args);
  }

  /** Returns {@code ExchangePlan} of pipe_exchange.cuh. */
  private KernelStruct handle(Exchange x) {
    KernelStruct plan = begin(EXCHANGE_BYTES);
    plan.putLong(x.input).putLong(x.own).putLong(x.place).putLong(x.forwardFrom).putLong(x.gather);
    plan.putLong(x.selfFrom).putLong(x.selfTo).putLong(x.selfBytes);
    plan.put(x.give).put(x.take).put(x.forward).put(x.collect).putInt(ordinal(x.op));
    return plan.putInt(x.reduces ? 1 : 0).putInt(x.twice ? 1 : 0).putInt(x.always ? 1 : 0);
  }

  /** Returns a plan with the fields that every method's plan begins with. */
  KernelStruct begin(int length) {
    KernelStruct plan = new KernelStruct(length).putLong(table.address());
    plan.putInt(layout.lanes()).putInt(layout.slotBytes());
    return plan.putInt(topology.rank()).putInt(topology.nRanks());
  }

  static int ordinal(ReduceOp op) {
    return op == null ? 0 : op.ordinal();
  }

  /** Returns {@code ListedParts} of pipe_exchange.cuh. */
  private static KernelStruct listedParts(Exchange exchange) {
    KernelStruct parts = new KernelStruct(2 * MOST_LISTED * Long.BYTES);
    for (PeerByteRanges spread : new PeerByteRanges[] {exchange.give, exchange.take}) {
      long[] ends = spread.ends();
      for (int rank = 0; rank < MOST_LISTED; rank++) {
        parts.putLong(ends[Math.min(rank, ends.length - 1)]);
      }
    }
    return parts;
  }

  /** Returns {@code ReductionPlan} of pipe_ring.cuh. */
  private KernelStruct handle(PartitionPlan ring) {
    KernelStruct plan = begin(REDUCTION_BYTES).putLong(ring.input()).putLong(ring.output());
    return plan.putLong(ring.size()).putLong(ring.stride()).putInt(ordinal(ring.op()));
  }

  @Override
  public void close() {
    Closing.all(table, hierarchy);
  }

  /** Hierarchical collectives on GPUs: kernels of pipes_hierarchical.cu. */
  private static final class GpuHierarchy implements AutoCloseable {
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
          gpus.layout,
          call -> true,
          (stream, bound) -> {
            PartitionPlan call = PartitionPlan.hierarchical(bound, hierarchy);
            Kernel kernel =
                call.kind() == Collective.ALL_REDUCE
                    ? allReduces.get(call.type())
                    : others.get(call.kind());
            gpus.launch(stream, kernel, mostBytes(call), KernelArgs.of(plan(call)));
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
    private KernelStruct plan(PartitionPlan call) {
      boolean rooted = call.kind() == Collective.BROADCAST || call.kind() == Collective.REDUCE;
      KernelStruct plan = gpus.begin(PLAN_BYTES).putLong(call.input()).putLong(call.output());
      plan.putLong(call.size()).putLong(call.stride());
      plan.putInt(call.type().ordinal()).putInt(ordinal(call.op()));
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
      Closing.onFailure(table, () -> numbers.upload(table, 0));
      return table;
    }

    @Override
    public void close() {
      ranks.close();
    }
  }

  /** A GPU's pipes in its memory, by lane and rank: {@code Pipe} of pipe.cuh. */
  private static final class PipeTable {
    /** {@code sizeof(Pipe)}. */
    private static final int PIPE_BYTES = 400;

    private static final int OUTBOX_OFFSET =
        2 * SemaphoreDescriptor.HANDLE_LENGTH + 2 * ProxyChannelDescriptor.LENGTH;

    private PipeTable() {}

    static long bytes(PipeLayout layout) {
      return (long) layout.lanes() * layout.nRanks() * PIPE_BYTES;
    }

    /** Writes the table, with all counts at their initial values. */
    static void write(Pipes pipes, DeviceBuffer target) {
      PipeLayout layout = pipes.layout;
      KernelStruct table = new KernelStruct(Math.toIntExact(bytes(layout)));
      for (int lane = 0; lane < layout.lanes(); lane++) {
        for (int peer = 0; peer < layout.nRanks(); peer++) {
          if (peer != pipes.peers.rank()) {
            writePipe(pipes, lane, peer, table, (lane * layout.nRanks() + peer) * PIPE_BYTES);
          }
        }
      }
      table.upload(target, 0);
    }

    private static void writePipe(Pipes pipes, int lane, int peer, KernelStruct table, int offset) {
      if (pipes.peers.isMapped(peer)) {
        table
            .at(offset)
            .put(pipes.semaphore(Pipes.FILLED, lane, peer))
            .put(pipes.semaphore(Pipes.EMPTIED, lane, peer));
      } else {
        ProxyChannel filled = pipes.channel(Pipes.FILLED, lane, peer);
        ProxyChannel emptied = pipes.channel(Pipes.EMPTIED, lane, peer);
        // Kernels wait for the semaphores in one place, whichever kind of channel signals them.
        table.at(offset).put(filled.semaphore()).put(emptied.semaphore()).put(filled).put(emptied);
      }
      int rank = pipes.peers.rank();
      table.at(offset + OUTBOX_OFFSET);
      table.putLong(pipes.outbox(lane, peer)).putLong(pipes.inbox(lane, peer));
      table.putLong(pipes.layout.outboxOffset(lane, rank, peer));
      table.putLong(pipes.layout.inboxOffset(lane, peer, rank));
      table.putLong(pipes.layout.slotBytes()).putLong(0).putLong(PipeLayout.SLOTS);
    }
  }
}
