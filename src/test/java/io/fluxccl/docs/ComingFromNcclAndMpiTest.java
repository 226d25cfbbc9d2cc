// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.docs;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.DataType;
import io.fluxccl.bootstrap.UniqueId;
import io.fluxccl.collective.Collectives;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.IntView;
import io.fluxccl.group.JoinOptions;
import io.fluxccl.group.RankGroup;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;
import reactor.test.StepVerifier;

/** The code of docs/20-coming-from-nccl-and-mpi.md. */
@org.junit.jupiter.api.Timeout(60)
class ComingFromNcclAndMpiTest {
  private static final int RANKS = 3;

  /** The first and last element, which a rank sends, and the elements that its neighbours send. */
  private static final class Edges {
    final IntView values;
    final DeviceBuffer beforeFirst;
    final DeviceBuffer first;
    final DeviceBuffer last;
    final DeviceBuffer afterLast;

    Edges(RankGroup group) {
      values = group.device().allocateInts(4);
      values.put(1, 10 * group.rank() + 1);
      values.put(2, 10 * group.rank() + 2);
      beforeFirst = element(0);
      first = element(1);
      last = element(2);
      afterLast = element(3);
    }

    private DeviceBuffer element(int i) {
      return values.buffer().slice(4L * i, 4);
    }
  }

  static CompletableFuture<RankGroup> join(UniqueId id, int rank, int nRanks) {
    return RankGroup.join(JoinOptions.of(rank, nRanks).withUniqueId(id));
  }

  static Mono<Void> exchangeEdges(Collectives collectives, RankGroup group, Edges edges) {
    int left = Math.floorMod(group.rank() - 1, group.nRanks());
    int right = (group.rank() + 1) % group.nRanks();
    return collectives
        .pipeline()
        .sendReceive(edges.first, 1, left, edges.afterLast, 1, right, DataType.INT32)
        .sendReceive(edges.last, 1, right, edges.beforeFirst, 1, left, DataType.INT32)
        .run();
  }

  @Test
  void shouldExchangeEdgesWithBothNeighbours() {
    UniqueId id = UniqueId.create();
    List<CompletableFuture<RankGroup>> joining =
        IntStream.range(0, RANKS).mapToObj(rank -> join(id, rank, RANKS)).toList();
    List<RankGroup> groups = joining.stream().map(CompletableFuture::join).toList();
    List<Edges> edges = groups.stream().map(Edges::new).toList();
    StepVerifier.create(
            Flux.fromIterable(groups)
                .flatMap(
                    group -> exchangeEdges(group.collectives(), group, edges.get(group.rank()))))
        .expectComplete()
        .verify(Duration.ofSeconds(30));
    for (int rank = 0; rank < RANKS; rank++) {
      IntView values = edges.get(rank).values;
      assertThat(values.get(0)).isEqualTo(10 * ((rank + RANKS - 1) % RANKS) + 2);
      assertThat(values.get(3)).isEqualTo(10 * ((rank + 1) % RANKS) + 1);
      values.close();
    }
    RankGroup.closeAll(groups);
  }
}
