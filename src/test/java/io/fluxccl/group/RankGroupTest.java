// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.group;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.DataType;
import io.fluxccl.FluxCclException;
import io.fluxccl.ReduceOp;
import io.fluxccl.device.DeviceBuffer;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.OptionalInt;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import reactor.core.publisher.Mono;
import reactor.test.StepVerifier;

@Tag("jdk")
class RankGroupTest {
  private static final Duration LONG = Duration.ofSeconds(60);

  @Test
  void shouldReportNoSilentRankUntilItIsClosed() {
    RankGroup group = RankGroup.local(1).get(0);
    StepVerifier.create(group.silentRank())
        .expectNext(OptionalInt.empty())
        .then(group::close)
        .expectComplete()
        .verify(LONG);
  }

  @Test
  void shouldEndWithATypedErrorWhenAnotherRankClosesItsGroup() throws Exception {
    List<RankGroup> groups =
        RankGroup.local(3, JoinOptions.of(0, 1).withTimeout(Duration.ofSeconds(10)));
    List<DeviceBuffer> buffers = new ArrayList<>();
    for (RankGroup group : groups) {
      DeviceBuffer buffer = group.device().allocate(1 << 16);
      buffers.add(buffer);
    }
    CompletableFuture<Void> leaving = groups.get(2).closeAsync();
    for (int rank = 0; rank < 2; rank++) {
      Mono<Void> run =
          groups
              .get(rank)
              .collectives()
              .allReduce(buffers.get(rank), DataType.FLOAT32, ReduceOp.SUM);
      assertThatThrownBy(() -> run.block(LONG))
          .isInstanceOf(FluxCclException.class)
          .hasMessageContaining("rank");
    }
    leaving.get(60, TimeUnit.SECONDS);
    groups.forEach(RankGroup::close);
    groups.forEach(RankGroup::close);
    buffers.forEach(DeviceBuffer::close);
    assertThat(groups.get(0).communicator().failure()).isNotNull();
  }

  @Test
  void shouldCloseAllAtOnceWhenAllLeave() {
    List<RankGroup> groups = RankGroup.local(3);
    List<CompletableFuture<Void>> closing = new ArrayList<>();
    groups.forEach(group -> closing.add(group.closeAsync()));
    assertThat(CompletableFuture.allOf(closing.toArray(new CompletableFuture<?>[0])))
        .succeedsWithin(LONG);
  }

  @Test
  void shouldAllReduceInAFewLines() {
    List<RankGroup> groups = RankGroup.local(3);
    List<DeviceBuffer> buffers = new ArrayList<>();
    List<Mono<Void>> runs = new ArrayList<>();
    for (RankGroup group : groups) {
      DeviceBuffer x = group.device().allocate(8 * Float.BYTES);
      x.upload(0, floats(group.rank() + 1));
      buffers.add(x);
      runs.add(group.collectives().allReduce(x, DataType.FLOAT32, ReduceOp.SUM));
    }
    StepVerifier.create(Mono.when(runs)).expectComplete().verify(LONG);
    for (DeviceBuffer x : buffers) {
      ByteBuffer result = floats(0);
      x.download(0, result);
      assertThat(result.getFloat(28)).isEqualTo(6);
    }
    List<CompletableFuture<Void>> closing = new ArrayList<>();
    groups.forEach(group -> closing.add(group.closeAsync()));
    assertThat(CompletableFuture.allOf(closing.toArray(new CompletableFuture<?>[0])))
        .succeedsWithin(LONG);
    StepVerifier.create(groups.get(0).collectives().barrier())
        .expectError(FluxCclException.class)
        .verify(LONG);
  }

  private static ByteBuffer floats(float value) {
    ByteBuffer bytes = ByteBuffer.allocateDirect(8 * Float.BYTES).order(ByteOrder.LITTLE_ENDIAN);
    for (int i = 0; i < 8; i++) {
      bytes.putFloat(i * Float.BYTES, value);
    }
    return bytes;
  }
}
