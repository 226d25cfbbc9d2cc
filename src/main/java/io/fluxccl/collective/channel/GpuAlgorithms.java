package io.fluxccl.collective.channel;

import io.fluxccl.DataType;
import io.fluxccl.ReduceOp;
import io.fluxccl.collective.Collective;
import io.fluxccl.collective.CollectiveAlgorithm;
import io.fluxccl.collective.RankTopology;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.Kernel;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.device.cuda.CudaModule;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.EnumMap;
import java.util.List;
import java.util.Map;

/** The methods on GPUs: kernels of pipes.cu, of which each block is a lane. */
final class GpuAlgorithms implements AutoCloseable {
  /** {@code kThreads} of pipe.cuh. */
  private static final int THREADS = 512;

  /** {@code ListedParts::kMost} of pipe_exchange.cuh. */
  private static final int MOST_LISTED = 128;

  private static final int EXCHANGE_BYTES = 232;
  private static final int REDUCTION_BYTES = 88;

  private final CudaDevice gpu;
  private final PipeLayout layout;
  private final RankTopology topology;
  private final DeviceBuffer table;
  private final DeviceBuffer places;
  private final List<CollectiveAlgorithm> algorithms = new ArrayList<>();

  GpuAlgorithms(Pipes pipes) {
    this.gpu = (CudaDevice) pipes.mesh().communicator().device();
    this.layout = pipes.layout();
    this.topology = pipes.mesh().topology();
    this.table = gpu.allocate(PipeTable.bytes(layout));
    boolean hierarchical = Hierarchy.isPossible(topology);
    this.places = hierarchical ? gpu.allocate(4L * Integer.BYTES * topology.nRanks()) : null;
    try {
      PipeTable.write(pipes, table);
      addExchange();
      addReduction(Method.RING, null);
      if (hierarchical) {
        Hierarchy hierarchy = Hierarchy.of(topology);
        writePlaces(hierarchy);
        addReduction(Method.HIERARCHICAL, hierarchy);
      }
    } catch (RuntimeException e) {
      close();
      throw e;
    }
  }

  List<CollectiveAlgorithm> all() {
    return algorithms;
  }

  private Map<DataType, Kernel> kernels(Method method, String name) {
    Map<DataType, Kernel> byType = new EnumMap<>(DataType.class);
    for (DataType type : DataType.values()) {
      if (method.reduces(type)) {
        byType.put(type, kernel(name + "_" + type.label()));
      }
    }
    return byType;
  }

  /** Loaded now: later that might wait for kernels. */
  private Kernel kernel(String name) {
    return CudaModule.builtIn().kernel("fluxccl_pipe_" + name).prepare(gpu);
  }

  private void addExchange() {
    Map<DataType, Kernel> kernels = kernels(Method.ALL_PAIRS, "exchange");
    Kernel listed = kernel("exchange_listed");
    algorithms.add(
        new ChannelAlgorithm(
            Method.ALL_PAIRS,
            call ->
                call.call().collective() != Collective.ALL_TO_ALL_V || call.nRanks() <= MOST_LISTED,
            (stream, call) -> {
              Exchange exchange = Exchange.of(call);
              PlanHandle plan = handle(exchange);
              if (exchange.giveBytes != null) {
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

  private void addReduction(Method method, Hierarchy hierarchy) {
    Map<DataType, Kernel> kernels = kernels(method, method.label());
    int parts = hierarchy == null ? topology.nRanks() : hierarchy.nLocal();
    algorithms.add(
        new ChannelAlgorithm(
            method,
            // There are no kernels by which hosts would do other collectives one inside the other.
            call -> call.call().collective() == Collective.ALL_REDUCE,
            (stream, call) -> {
              Reduction reduction = Reduction.of(call, parts);
              launch(
                  stream,
                  kernels.get(reduction.type()),
                  reduction.stride(),
                  KernelArgs.of(handle(reduction, hierarchy)));
            }));
  }

  /** With as many lanes as share the most bytes of any pair. */
  private void launch(DeviceStream stream, Kernel kernel, long most, KernelArgs args) {
    stream.launch(kernel, layout.lanesOf(most), THREADS, args);
  }

  /** {@code ExchangePlan} of pipe_exchange.cuh. */
  private PlanHandle handle(Exchange x) {
    return begin(EXCHANGE_BYTES)
        .put(x.input)
        .put(x.own)
        .put(x.place)
        .put(x.handOnFrom)
        .put(x.gather)
        .put(x.selfFrom)
        .put(x.selfTo)
        .put(x.selfBytes)
        .put(x.give)
        .put(x.take)
        .put(x.handOn)
        .put(x.collect)
        .put(ordinal(x.op))
        .put(x.reduces ? 1 : 0)
        .put(x.twice ? 1 : 0)
        .put(x.always ? 1 : 0);
  }

  private PlanHandle begin(int length) {
    return new PlanHandle(length)
        .put(table.address())
        .put(layout.lanes())
        .put(layout.slotBytes())
        .put(topology.rank())
        .put(topology.nRanks());
  }

  private static int ordinal(ReduceOp op) {
    return op == null ? 0 : op.ordinal();
  }

  /** {@code ListedParts} of pipe_exchange.cuh. */
  private static PlanHandle listedParts(Exchange exchange) {
    PlanHandle parts = new PlanHandle(2 * MOST_LISTED * Long.BYTES);
    for (long[] bytes : new long[][] {exchange.giveBytes, exchange.takeBytes}) {
      long end = 0;
      for (int rank = 0; rank < MOST_LISTED; rank++) {
        end += rank < bytes.length ? bytes[rank] : 0;
        parts.put(end);
      }
    }
    return parts;
  }

  /** {@code ReductionPlan} of pipe_ring.cuh. */
  private PlanHandle handle(Reduction reduction, Hierarchy hierarchy) {
    PlanHandle plan =
        begin(REDUCTION_BYTES)
            .put(reduction.input())
            .put(reduction.output())
            .put(reduction.size())
            .put(reduction.stride())
            .put(ordinal(reduction.op()));
    return hierarchy == null
        ? plan
        : plan.put(hierarchy.isSplit(reduction.size()) ? 1 : 0)
            .put(hierarchy.nLocal())
            .put(hierarchy.localIndex())
            .put(hierarchy.hosts())
            .put(hierarchy.railIndex())
            .put(places.address());
  }

  /** {@code ReductionPlan::places}. */
  private void writePlaces(Hierarchy hierarchy) {
    int nRanks = topology.nRanks();
    int[] localOf = new int[nRanks];
    int[] railOf = new int[nRanks];
    for (int rank = 0; rank < nRanks; rank++) {
      localOf[rank] = indexOf(hierarchy.local(), rank);
      railOf[rank] = indexOf(hierarchy.rail(), rank);
    }
    ByteBuffer bytes =
        ByteBuffer.allocateDirect((int) places.size()).order(ByteOrder.nativeOrder());
    for (int[] section : new int[][] {hierarchy.local(), hierarchy.rail(), localOf, railOf}) {
      for (int place : section) {
        bytes.putInt(place);
      }
    }
    places.upload(0, bytes.flip());
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
    table.close();
    if (places != null) {
      places.close();
    }
  }
}
