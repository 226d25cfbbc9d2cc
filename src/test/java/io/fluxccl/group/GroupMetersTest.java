// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.group;

import static org.assertj.core.api.Assertions.assertThat;
import static org.awaitility.Awaitility.await;

import io.fluxccl.Aborted;
import io.fluxccl.DataType;
import io.fluxccl.ReduceOp;
import io.fluxccl.device.DeviceBuffer;
import io.micrometer.core.instrument.Counter;
import io.micrometer.core.instrument.simple.SimpleMeterRegistry;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.assertj.core.data.Percentage;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(60)
@Tag("jdk")
class GroupMetersTest {
  private final SimpleMeterRegistry registry = new SimpleMeterRegistry();
  private final GroupMeters meters = GroupMeters.register(registry, "job", "chat");

  private double value(String name) {
    return registry.get(name).tag("job", "chat").gauge().value();
  }

  private Counter failures() {
    return registry.find("fluxccl.failures").tags("job", "chat", "code", "aborted").counter();
  }

  @Test
  void shouldShowTheGroupThatWorksUntilItIsClosed() {
    assertThat(value("fluxccl.ranks")).isZero();
    List<RankGroup> groups = RankGroup.local(2);
    assertThat(meters.follow(groups.get(0))).isSameAs(groups.get(0));
    assertThat(value("fluxccl.ranks")).isEqualTo(2);
    assertThat(value("fluxccl.ranks.silent")).isZero();
    assertThat(value("fluxccl.generation")).isEqualTo(1);
    RankGroup.closeAll(groups);
    await().until(() -> value("fluxccl.ranks") == 0);
    assertThat(failures()).isNull();
  }

  @Test
  void shouldCountHowGroupsFail() {
    List<RankGroup> groups = RankGroup.local(2);
    meters.follow(groups.get(0));
    groups.get(1).communicator().abort(Aborted.of(1, "as the test wants"));
    await().until(() -> failures() != null && failures().count() == 1);
    assertThat(value("fluxccl.ranks")).isZero();
    RankGroup.closeAll(groups);
  }

  @Test
  void shouldMeasureCallsByKindAndSize() {
    List<RankGroup> groups = RankGroup.local(2);
    meters.follow(groups.get(0));
    List<DeviceBuffer> buffers =
        groups.stream().map(group -> group.device().allocate(8192)).toList();
    List<CompletableFuture<Void>> both = new ArrayList<>();
    for (int rank = 0; rank < 2; rank++) {
      both.add(
          groups
              .get(rank)
              .collectives()
              .allReduce(buffers.get(rank), DataType.FLOAT32, ReduceOp.SUM)
              .toFuture());
    }
    both.forEach(CompletableFuture::join);
    await().until(() -> value("fluxccl.calls.in.flight") == 0);
    assertThat(value("fluxccl.proxy.duty")).isZero();
    groups.get(0).communicator().recorder().addProxy(() -> 0.25);
    assertThat(value("fluxccl.proxy.duty")).isEqualTo(0.25);
    String[] tags = {"job", "chat", "kind", "all-reduce", "size", "64K"};
    await().until(() -> registry.find("fluxccl.calls").tags(tags).timer() != null);
    await().until(() -> registry.get("fluxccl.calls").tags(tags).timer().count() == 1);
    double seconds = registry.get("fluxccl.calls").tags(tags).timer().totalTime(TimeUnit.SECONDS);
    assertThat(registry.get("fluxccl.calls.bytes").tags(tags).counter().count()).isEqualTo(8192);
    // 2 (n - 1) / n is 1 of two ranks.
    assertThat(registry.get("fluxccl.calls.bus.bandwidth").tags(tags).summary().totalAmount())
        .isCloseTo(8192 / seconds, Percentage.withPercentage(0.1));
    groups.get(0).collectives().barrier().subscribe();
    assertThat(value("fluxccl.calls.in.flight")).isEqualTo(1);
    groups.get(1).collectives().barrier().block();
    RankGroup.closeAll(groups);
    buffers.forEach(DeviceBuffer::close);
  }
}
