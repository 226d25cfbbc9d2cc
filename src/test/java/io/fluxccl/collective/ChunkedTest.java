// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import static io.fluxccl.DataType.INT32;
import static io.fluxccl.testing.Outcomes.refuses;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.ReduceOp;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.testing.OnRanks;
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.testkit.LocalRanks;
import io.fluxccl.transport.Transport;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;
import reactor.test.StepVerifier;

/** Chunks on the host device. */
@Timeout(300)
@OnRanks(seconds = 120)
class ChunkedTest {
  @ParameterizedTest(name = "{0} ranks, {1} elements, registered: {2}")
  @CsvSource({"2,10007,false", "2,100003,true", "3,5001,true", "3,40001,false", "4,5,false"})
  void shouldMatchTheResultOfTheUnchunkedCall(int nRanks, int count, boolean registered) {
    try (LocalRanks ranks = LocalRanks.of(nRanks)) {
      new ChunkedContract(CollectivesOptions.DEFAULT, count, registered).check(ranks);
    }
  }

  @Test
  void shouldMatchUnchunkedCallsBetweenHosts() {
    CollectivesOptions overSockets = CollectivesOptions.DEFAULT.withTransport(Transport.ETHERNET);
    try (LocalRanks sockets = LocalRanks.of(3);
        LocalRanks hosts = LocalRanks.ofHosts(2, 2)) {
      new ChunkedContract(overSockets, 30_001, false).check(sockets);
      new ChunkedContract(CollectivesOptions.DEFAULT, 100_003, false).check(hosts);
    }
  }

  @ParameterizedTest
  @ValueSource(longs = {2, 16})
  void shouldDoAllInOneChunkOfAnySize(long count, LocalRank rank, Collectives collectives) {
    DeviceBuffer x = rank.device().allocate(64);
    CollectiveCall call = CollectiveCall.allReduce(x, x, count, INT32, ReduceOp.SUM);
    StepVerifier.create(collectives.chunked(call, Long.MAX_VALUE))
        .expectNext(new Chunk(0, 0, count))
        .expectComplete()
        .verify(ChunkedContract.LONG);
  }

  @Test
  void shouldCountChunksUpToTheLastThatHasANumber() {
    long most = Integer.MAX_VALUE;
    assertThat(ChunkFlux.ChunkedCall.of(broadcast(0), Long.MAX_VALUE).chunks()).isZero();
    assertThat(ChunkFlux.ChunkedCall.of(broadcast(1), 1).chunks()).isEqualTo(1);
    assertThat(ChunkFlux.ChunkedCall.of(broadcast(10), 5).chunks()).isEqualTo(2);
    assertThat(ChunkFlux.ChunkedCall.of(broadcast(11), 5).chunks()).isEqualTo(3);
    assertThat(ChunkFlux.ChunkedCall.of(broadcast(most), 1).chunks()).isEqualTo(Integer.MAX_VALUE);
    refuses(() -> ChunkFlux.ChunkedCall.of(broadcast(most + 1), 1), "chunks");
  }

  private static CollectiveCall broadcast(long count) {
    return CollectiveCall.broadcast(null, null, count, INT32, 0);
  }
}
