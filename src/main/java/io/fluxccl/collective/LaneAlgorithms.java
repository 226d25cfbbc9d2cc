package io.fluxccl.collective;

import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.device.DeviceStream;
import java.util.List;
import java.util.Optional;

/**
 * What a lane does with a single call: checks it, chooses its algorithm, and has that enqueue it.
 * Checking and enqueueing are for {@link Step}s, under the lane's lock; the rest may be called by
 * any thread.
 */
final class LaneAlgorithms {
  private final Communicator communicator;
  private final RankTopology topology;
  private final Registrations registrations;
  private final AlgorithmSelector selector;

  LaneAlgorithms(
      Communicator communicator,
      RankTopology topology,
      Registrations registrations,
      AlgorithmSelector selector) {
    this.communicator = communicator;
    this.topology = topology;
    this.registrations = registrations;
    this.selector = selector;
  }

  /** The name of the algorithm that a call would take now. */
  String nameFor(CollectiveCall call) {
    return choose(call).name();
  }

  /** The names of those that can do a call. */
  List<String> namesFor(CollectiveCall call) {
    return selector.supporting(registrations.bind(call));
  }

  /** {@link AlgorithmSelector#prefer}. */
  void prefer(Collective collective, Optional<String> algorithm) {
    selector.prefer(collective, algorithm);
  }

  /**
   * Refuses a call that can't be right, or that no algorithm can do.
   *
   * @param first whether enqueueing it is the first to be done, and soon enough to find the latter
   * @throws InvalidUsage that says what
   */
  void check(CollectiveCall call, boolean first) {
    CallChecks.check(call, communicator.device(), topology);
    if (!first && needsAlgorithm(call)) {
      choose(call);
    }
  }

  /** Enqueues a call that was checked. */
  void enqueue(CollectiveCall call, DeviceStream on) {
    if (needsAlgorithm(call)) {
      BoundCall bound = registrations.bind(call);
      enqueue(selector.choose(bound), bound, on);
    } else if (topology.nRanks() == 1) {
      Alone.enqueue(call, on);
    }
  }

  /** Where an algorithm of this rank fails, the others' have gone on: their order is lost. */
  private void enqueue(CollectiveAlgorithm algorithm, BoundCall call, DeviceStream on) {
    try {
      algorithm.enqueue(on, call);
    } catch (RuntimeException | Error e) {
      communicator.abort(FluxCclException.from(e));
      throw e;
    }
  }

  private CollectiveAlgorithm choose(CollectiveCall call) {
    return selector.choose(registrations.bind(call));
  }

  private boolean needsAlgorithm(CollectiveCall call) {
    return topology.nRanks() > 1 && (call.collective() == Collective.BARRIER || hasBytes(call));
  }

  /** Ranks can't know of each other's sizes where these may differ. */
  private static boolean hasBytes(CollectiveCall call) {
    return call.count() > 0
        || call.collective() == Collective.ALL_TO_ALL_V
        || call.collective() == Collective.SEND_RECEIVE;
  }
}
