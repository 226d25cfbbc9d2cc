// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.cuda;

import static org.mockito.AdditionalAnswers.delegatesTo;
import static org.mockito.ArgumentMatchers.any;
import static org.mockito.Mockito.doAnswer;
import static org.mockito.Mockito.doReturn;
import static org.mockito.Mockito.mock;

import io.fluxccl.collective.AlgorithmFamily;
import io.fluxccl.collective.AlgorithmSet;
import io.fluxccl.collective.CollectiveAlgorithm;
import io.fluxccl.collective.PeerConnections;
import io.fluxccl.collective.RankTopology;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.testing.FakeFamily;
import java.util.concurrent.CompletableFuture;
import java.util.function.UnaryOperator;

/**
 * A family with the algorithms of another one, each faster by its estimate and with a prefix to its
 * name. A test wraps the streams on which they enqueue their work.
 */
final class WrappedFamily extends FakeFamily {
  private final String prefix;
  private final AlgorithmFamily family;
  private final UnaryOperator<DeviceStream> streams;

  WrappedFamily(String prefix, AlgorithmFamily family, UnaryOperator<DeviceStream> streams) {
    super(prefix + family.name());
    this.prefix = prefix;
    this.family = family;
    this.streams = streams;
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
              algorithm.enqueue(streams.apply(asked.getArgument(0)), asked.getArgument(1));
              return null;
            })
        .when(wrapped)
        .enqueue(any(), any());
    return wrapped;
  }
}
