// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.cuda;

import static org.mockito.AdditionalAnswers.delegatesTo;
import static org.mockito.ArgumentMatchers.any;
import static org.mockito.Mockito.doAnswer;
import static org.mockito.Mockito.doReturn;
import static org.mockito.Mockito.mock;

import io.fluxccl.collective.AlgorithmFamily;
import io.fluxccl.collective.AlgorithmSet;
import io.fluxccl.collective.BoundCall;
import io.fluxccl.collective.CollectiveAlgorithm;
import io.fluxccl.collective.PeerConnections;
import io.fluxccl.collective.RankTopology;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.testing.FakeFamily;
import java.util.concurrent.CompletableFuture;
import java.util.function.Consumer;

/**
 * A family with the algorithms of another one, each faster by its estimate and with a prefix to its
 * name. A test decides how they enqueue their work.
 */
final class WrappedFamily extends FakeFamily {
  private final String prefix;
  private final AlgorithmFamily family;
  private final Enqueuing enqueuing;

  /** Enqueues the work of an algorithm on a stream. */
  interface Enqueuing {
    void enqueue(DeviceStream stream, Consumer<DeviceStream> work);
  }

  WrappedFamily(String prefix, AlgorithmFamily family, Enqueuing enqueuing) {
    super(prefix + family.name());
    this.prefix = prefix;
    this.family = family;
    this.enqueuing = enqueuing;
  }

  @Override
  public boolean supports(RankTopology topology) {
    return family.supports(topology);
  }

  @Override
  public CompletableFuture<AlgorithmSet> prepare(PeerConnections peers) {
    return family.prepare(peers).thenApply(this::wrapped);
  }

  private AlgorithmSet wrapped(AlgorithmSet set) {
    AlgorithmSet wrapped = mock(AlgorithmSet.class, delegatesTo(set));
    doReturn(set.algorithms().stream().map(this::wrapped).toList()).when(wrapped).algorithms();
    return wrapped;
  }

  private CollectiveAlgorithm wrapped(CollectiveAlgorithm algorithm) {
    CollectiveAlgorithm wrapped = mock(CollectiveAlgorithm.class, delegatesTo(algorithm));
    doReturn(prefix + algorithm.name()).when(wrapped).name();
    doAnswer(asked -> algorithm.estimate(asked.getArgument(0)) / 1000)
        .when(wrapped)
        .estimate(any());
    doAnswer(
            asked -> {
              BoundCall call = asked.getArgument(1);
              enqueuing.enqueue(asked.getArgument(0), stream -> algorithm.enqueue(stream, call));
              return null;
            })
        .when(wrapped)
        .enqueue(any(), any());
    return wrapped;
  }
}
