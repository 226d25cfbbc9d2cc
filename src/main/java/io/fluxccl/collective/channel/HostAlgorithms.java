// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.channel;

import io.fluxccl.collective.BoundCall;
import io.fluxccl.collective.CollectiveAlgorithm;
import io.fluxccl.collective.RankTopology;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.host.HostKernel;
import io.fluxccl.device.host.HostReduction;
import java.util.ArrayList;
import java.util.List;
import java.util.function.BiConsumer;
import java.util.function.Function;
import java.util.function.Predicate;
import java.util.stream.Stream;

/** The methods on the host device: kernels of one block, each of whose threads is a lane. */
final class HostAlgorithms {
  private final Communicator communicator;
  private final HostPipeWorker[] lanes;

  private HostAlgorithms(Pipes pipes) {
    this.communicator = pipes.peers.communicator();
    this.lanes = HostPipeWorker.of(pipes);
  }

  /** Returns the methods; {@code groups} may be null. */
  static List<CollectiveAlgorithm> of(Pipes pipes, RailNetwork.Groups groups) {
    HostAlgorithms host = new HostAlgorithms(pipes);
    RankTopology topology = pipes.peers.topology();
    List<CollectiveAlgorithm> all = new ArrayList<>();
    all.add(
        host.algorithm(
            PipeAlgorithm.ALL_PAIRS,
            Exchange.class,
            Exchange::new,
            lane -> new HostExchange(lane)::run));
    all.add(
        host.algorithm(
            PipeAlgorithm.RING,
            PartitionPlan.class,
            PartitionPlan::ring,
            lane -> new HostRing(lane)::run));
    if (Hierarchy.isPossible(topology)) {
      Hierarchy hierarchy = Hierarchy.of(topology);
      all.add(
          host.algorithm(
              PipeAlgorithm.HIERARCHICAL,
              PartitionPlan.class,
              call -> PartitionPlan.direct(call, hierarchy),
              lane -> hierarchical(lane, hierarchy)));
    }
    if (groups != null) {
      Hierarchy hierarchy = Hierarchy.of(topology);
      all.add(
          host.algorithm(
              PipeAlgorithm.COLLNET,
              call -> groups.reduces(call.call().type(), call.call().op()),
              PartitionPlan.class,
              call -> PartitionPlan.direct(call, hierarchy),
              lane -> new CollNetAllReduce(lane, hierarchy, groups.lane(lane.lane))::run));
    }
    return all;
  }

  private static BiConsumer<PartitionPlan, HostReduction> hierarchical(
      HostPipeWorker lane, Hierarchy hierarchy) {
    HostHierarchical allReduce = new HierarchicalAllReduce(lane, hierarchy);
    HostHierarchical chain = new HierarchicalChain(lane, hierarchy);
    HostHierarchical rounds = new HierarchicalRounds(lane, hierarchy);
    return (call, reduction) -> {
      HostHierarchical kernel =
          switch (call.kind()) {
            case ALL_REDUCE -> allReduce;
            case BROADCAST, REDUCE -> chain;
            default -> rounds;
          };
      kernel.run(call, reduction);
    };
  }

  private <P> CollectiveAlgorithm algorithm(
      PipeAlgorithm method,
      Class<P> plan,
      Function<BoundCall, P> planOf,
      Function<HostPipeWorker, BiConsumer<P, HostReduction>> kernelOf) {
    return algorithm(method, call -> true, plan, planOf, kernelOf);
  }

  private <P> CollectiveAlgorithm algorithm(
      PipeAlgorithm method,
      Predicate<BoundCall> canLaunch,
      Class<P> plan,
      Function<BoundCall, P> planOf,
      Function<HostPipeWorker, BiConsumer<P, HostReduction>> kernelOf) {
    List<BiConsumer<P, HostReduction>> byLane = Stream.of(lanes).map(kernelOf).toList();
    HostKernel kernel =
        HostKernel.of(
            method.label(),
            (thread, args) -> {
              // After a failure the staging memory may be unmapped.
              if (communicator.failure() == null) {
                lanes[thread.threadIdx()].begin(args.get(1, BoundCall.class));
                byLane.get(thread.threadIdx()).accept(args.get(0, plan), thread.reduction());
              }
            });
    return new ChannelAlgorithm(
        method,
        canLaunch,
        (stream, call) ->
            stream.launch(kernel, 1, lanes.length, KernelArgs.of(planOf.apply(call), call)));
  }
}
