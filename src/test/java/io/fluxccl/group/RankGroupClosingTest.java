package io.fluxccl.group;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.InvalidUsage;
import io.fluxccl.collective.CollectivesOptions;
import io.fluxccl.testing.FakeFamily;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(180)
class RankGroupClosingTest {
  private static final Duration LONG = Duration.ofSeconds(60);

  private static List<RankGroup> local(int nRanks, FakeFamily family) {
    return RankGroup.local(
        nRanks,
        JoinOptions.of(0, 1)
            .withDevice(DeviceChoice.HOST)
            .withCollectives(CollectivesOptions.DEFAULT.withFamily(family)));
  }

  @Test
  void shouldCloseAllTheRestWhenCollectivesCannotBeClosed() {
    RankGroup group =
        local(
                1,
                new FakeFamily("fake") {
                  @Override
                  public void close() {
                    throw new IllegalStateException("on purpose");
                  }
                })
            .get(0);
    assertThatThrownBy(group::close).hasMessageContaining("on purpose");
    assertThat(group.communicator().isClosed()).isTrue();
    assertThatThrownBy(() -> group.device().allocate(64)).isInstanceOf(InvalidUsage.class);
    assertThat(group.bootstrap().failure()).succeedsWithin(LONG);
  }

  @Test
  void shouldCloseWhereItMayBlock() {
    Queue<String> threads = new ConcurrentLinkedQueue<>();
    List<RankGroup> groups =
        local(
            2,
            new FakeFamily("fake") {
              @Override
              public void close() {
                threads.add(Thread.currentThread().getName());
              }
            });
    List<CompletableFuture<Void>> closing = new ArrayList<>();
    groups.forEach(group -> closing.add(group.closeAsync()));
    assertThat(closing).allSatisfy(each -> assertThat(each).succeedsWithin(LONG));
    assertThat(threads).hasSize(2).allMatch(name -> name.startsWith("fluxccl-blocking"));
  }
}
