// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.channel;

import io.fluxccl.collective.BoundCall;
import io.fluxccl.collective.CollectiveAlgorithm;
import io.fluxccl.collective.RankTopology;
import io.fluxccl.collective.channel.PipeAlgorithm.ChannelAlgorithm;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.host.HostKernel;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Consumer;
import java.util.function.Function;
import java.util.function.Predicate;
import java.util.stream.Stream;

/** The methods on the host device: kernels of one block, each of whose threads is a worker. */
final class HostAlgorithms {
  private final Communicator communicator;
  private final HostPipeWorker[] workers;

  private HostAlgorithms(Pipes pipes) {
    this.communicator = pipes.peers.communicator();
    this.workers = HostPipeWorker.of(pipes);
  }

  /** Returns the methods; {@code groups} may be null. */
  static List<CollectiveAlgorithm> of(Pipes pipes, RailNetwork.Groups groups) {
    HostAlgorithms host = new HostAlgorithms(pipes);
    RankTopology topology = pipes.peers.topology();
    List<CollectiveAlgorithm> all = new ArrayList<>();
    all.add(
        host.algorithm(
            PipeAlgorithm.ALL_PAIRS,
            call -> true,
            Exchange::new,
            worker -> new HostSchedule.AllPairs(worker)::run));
    all.add(
        host.algorithm(
            PipeAlgorithm.RING,
            call -> true,
            PartitionPlan::ring,
            worker -> new HostSchedule.Ring(worker)::run));
    all.add(
        host.algorithm(
            PipeAlgorithm.TREE,
            call -> true,
            PartitionPlan::tree,
            worker -> new HostTree(worker)::run));
    if (Hierarchy.isPossible(topology)) {
      Hierarchy hierarchy = Hierarchy.of(topology);
      all.add(
          host.algorithm(
              PipeAlgorithm.HIERARCHICAL,
              call -> true,
              call -> PartitionPlan.direct(call, hierarchy),
              worker -> hierarchical(worker, hierarchy)));
    }
    if (groups != null) {
      Hierarchy hierarchy = Hierarchy.of(topology);
      all.add(
          host.algorithm(
              PipeAlgorithm.COLLNET,
              call -> groups.reduces(call.call().type(), call.call().op()),
              call -> PartitionPlan.direct(call, hierarchy),
              worker ->
                  new HierarchicalSchedule.CollNet(worker, hierarchy, groups.lane(worker.lane))
                      ::run));
    }
    return all;
  }

  private static Consumer<PartitionPlan> hierarchical(HostPipeWorker worker, Hierarchy hierarchy) {
    HierarchicalSchedule allReduce = new HierarchicalSchedule.AllReduce(worker, hierarchy);
    HierarchicalSchedule chain = new HierarchicalSchedule.Chain(worker, hierarchy);
    HierarchicalSchedule rounds = new HierarchicalSchedule.Rounds(worker, hierarchy);
    return call ->
        (switch (call.kind()) {
              case ALL_REDUCE -> allReduce;
              case BROADCAST, REDUCE -> chain;
              default -> rounds;
            })
            .run(call);
  }

  /**
   * Returns an algorithm.
   *
   * @param canLaunch whether the network can do a call that the method supports
   * @param planOf returns the plan of a call
   * @param scheduleOf returns what a worker does with a plan
   */
  private <P> CollectiveAlgorithm algorithm(
      PipeAlgorithm method,
      Predicate<BoundCall> canLaunch,
      Function<BoundCall, P> planOf,
      Function<HostPipeWorker, Consumer<P>> scheduleOf) {
    List<Consumer<P>> schedules = Stream.of(workers).map(scheduleOf).toList();
    HostKernel kernel =
        HostKernel.of(
            method.label(),
            (thread, args) -> {
              // After a failure the staging memory may be unmapped.
              if (communicator.failure() == null) {
                int index = thread.threadIdx();
                workers[index].begin(args.get(1, BoundCall.class), thread.reduction());
                @SuppressWarnings("unchecked") // of planOf
                P plan = (P) args.get(0, Object.class);
                schedules.get(index).accept(plan);
              }
            });
    return new ChannelAlgorithm(
        method,
        workers[0].layout,
        canLaunch,
        (stream, call) ->
            stream.launch(kernel, 1, workers.length, KernelArgs.of(planOf.apply(call), call)));
  }
}
