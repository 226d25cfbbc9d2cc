// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.group;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.InvalidUsage;
import io.fluxccl.collective.CollectivesOptions;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.host.HostKernel;
import io.fluxccl.testing.FakeFamily;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import reactor.core.publisher.Mono;

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
  void shouldFinishWhatWasCancelled() {
    AtomicInteger finished = new AtomicInteger();
    HostKernel hold = HostKernel.of("hold", (context, args) -> sleep());
    HostKernel end = HostKernel.of("end", (context, args) -> finished.incrementAndGet());
    List<RankGroup> groups = RankGroup.local(2, JoinOptions.of(0, 1).withDevice(DeviceChoice.HOST));
    for (RankGroup group : groups) {
      group
          .pipeline()
          .launch(hold, 1, 1, KernelArgs.NONE)
          .barrier()
          .launch(end, 1, 1, KernelArgs.NONE)
          .run()
          .subscribe()
          .dispose();
    }
    RankGroup.closeAll(groups);
    assertThat(finished).hasValue(2);
  }

  private static void sleep() {
    LockSupport.parkNanos(TimeUnit.SECONDS.toNanos(1));
  }

  @Test
  void shouldNameTheJobInWhatIsRefused() {
    List<RankGroup> groups =
        RankGroup.local(1, JoinOptions.of(0, 1).withDevice(DeviceChoice.HOST).withName("chat"));
    RankGroup group = groups.get(0);
    Mono<Void> run = group.collectives().barrier();
    group.collectives().close();
    assertThatThrownBy(() -> run.block(LONG))
        .isInstanceOf(InvalidUsage.class)
        .hasMessageContaining("job chat: ");
    group.close();
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
