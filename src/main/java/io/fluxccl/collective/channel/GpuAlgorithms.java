// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.channel;

import io.fluxccl.DataType;
import io.fluxccl.ReduceOp;
import io.fluxccl.collective.Collective;
import io.fluxccl.collective.CollectiveAlgorithm;
import io.fluxccl.collective.GpuKernels;
import io.fluxccl.collective.KernelStruct;
import io.fluxccl.collective.RankTopology;
import io.fluxccl.concurrent.Closing;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.Kernel;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.device.cuda.CudaKernel;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

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
    } catch (RuntimeException e) {
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
}
