// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import static io.fluxccl.DataType.INT32;
import static io.fluxccl.testing.Outcomes.completes;
import static io.fluxccl.testing.Outcomes.fails;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.InvalidUsage;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.IntView;
import io.fluxccl.testing.OnRanks;
import io.fluxccl.testkit.LocalRank;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Messages of a rank to itself. */
@Tag("jdk")
@OnRanks(value = OnRanks.FIRST_ARGUMENT, seconds = 120)
class CollectivesTest {
  @ParameterizedTest
  @ValueSource(ints = {1, 2})
  void shouldRefuseToSendItselfOtherThanItReceives(
      int nRanks, LocalRank rank, Collectives collectives) {
    int me = rank.rank();
    IntView in = rank.device().allocateInts(16);
    IntView out = rank.device().allocateInts(8);
    in.put(new int[] {1, 2, 3, 4, 5, 6, 7, 8 + me});
    DeviceBuffer source = in.buffer();
    DeviceBuffer target = out.buffer();
    refuses(collectives.send(source, 5, INT32, me), "itself 20", "expects 0");
    refuses(collectives.recv(target, 5, INT32, me), "itself 0", "expects 20");
    refuses(
        collectives.sendReceive(source, 16, me, target, 8, me, INT32), "itself 64", "expects 32");
    refuses(collectives.pipeline().send(source, 5, INT32, me).run(), "itself 20");
    completes(collectives.sendReceive(source, 8, me, target, 8, me, INT32));
    assertThat(out.toArray()).containsExactly(1, 2, 3, 4, 5, 6, 7, 8 + me);
    completes(collectives.barrier());
  }

  private static void refuses(reactor.core.publisher.Mono<Void> run, String... parts) {
    fails(run, InvalidUsage.class, parts);
  }
}
