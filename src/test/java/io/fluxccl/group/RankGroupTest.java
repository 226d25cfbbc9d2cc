package io.fluxccl.group;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.DataType;
import io.fluxccl.FluxCclException;
import io.fluxccl.ReduceOp;
import io.fluxccl.collective.AllReduce;
import io.fluxccl.device.DeviceBuffer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

class RankGroupTest {
  private static final Duration LONG = Duration.ofSeconds(20);

  @Test
  void shouldEndWithATypedErrorWhenAnotherRankClosesItsGroup() throws Exception {
    List<RankGroup> groups = RankGroup.local(3, Duration.ofSeconds(1));
    List<CompletableFuture<AllReduce>> preparing = new ArrayList<>();
    List<DeviceBuffer> buffers = new ArrayList<>();
    for (RankGroup group : groups) {
      DeviceBuffer buffer = group.device().allocate(1 << 16);
      buffers.add(buffer);
      preparing.add(group.allReduce(buffer));
    }
    CompletableFuture.allOf(preparing.toArray(new CompletableFuture<?>[0]))
        .get(10, TimeUnit.SECONDS);
    CompletableFuture<Void> leaving = groups.get(2).closeAsync();
    for (int rank = 0; rank < 2; rank++) {
      AllReduce allReduce = preparing.get(rank).join();
      assertThatThrownBy(() -> allReduce.run(1 << 12, DataType.FLOAT32, ReduceOp.SUM).block(LONG))
          .isInstanceOf(FluxCclException.class)
          .hasMessageContaining("rank");
    }
    leaving.get(10, TimeUnit.SECONDS);
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
        .succeedsWithin(3, TimeUnit.SECONDS);
  }
}
