package io.fluxccl.group;

import static org.assertj.core.api.Assertions.assertThat;
import static org.awaitility.Awaitility.await;

import io.fluxccl.Aborted;
import io.micrometer.core.instrument.Counter;
import io.micrometer.core.instrument.simple.SimpleMeterRegistry;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(60)
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
}
