// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.cuda;

import io.fluxccl.collective.AlgorithmFamily;
import io.fluxccl.collective.AlgorithmSet;
import io.fluxccl.collective.BoundCall;
import io.fluxccl.collective.CollectiveAlgorithm;
import io.fluxccl.collective.PeerConnections;
import io.fluxccl.collective.RankTopology;
import io.fluxccl.device.DeviceGraph;
import io.fluxccl.device.DeviceStream;
import java.util.List;
import java.util.concurrent.CompletableFuture;

/** The family's algorithms, each call recorded as a graph that is launched some times. */
final class ReplayedExchange implements AlgorithmFamily {
  static final String SUFFIX = "-replayed";

  private final int times;

  ReplayedExchange(int times) {
    this.times = times;
  }

  @Override
  public String name() {
    return "replayed-exchange";
  }

  @Override
  public List<String> description() {
    return List.of();
  }

  @Override
  public boolean supports(RankTopology topology) {
    return true;
  }

  @Override
  public CompletableFuture<AlgorithmSet> prepare(PeerConnections peers) {
    return ExchangeSet.prepare(peers)
        .thenApply(
            set ->
                new AlgorithmSet() {
                  @Override
                  public List<CollectiveAlgorithm> algorithms() {
                    return set.algorithms().stream()
                        .<CollectiveAlgorithm>map(Replayed::new)
                        .toList();
                  }

                  @Override
                  public void close() {
                    set.close();
                  }
                });
  }

  private final class Replayed implements CollectiveAlgorithm {
    private final CollectiveAlgorithm algorithm;

    Replayed(CollectiveAlgorithm algorithm) {
      this.algorithm = algorithm;
    }

    @Override
    public String name() {
      return algorithm.name() + SUFFIX;
    }

    @Override
    public boolean supports(BoundCall call) {
      return algorithm.supports(call);
    }

    @Override
    public double estimate(BoundCall call) {
      return Double.MAX_VALUE;
    }

    @Override
    public void enqueue(DeviceStream stream, BoundCall call) {
      try (DeviceGraph graph =
          stream.device().record(name(), recording -> algorithm.enqueue(recording, call))) {
        for (int i = 0; i < times; i++) {
          stream.launch(graph);
        }
      }
    }
  }
}
