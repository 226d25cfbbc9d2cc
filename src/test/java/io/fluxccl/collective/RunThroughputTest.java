// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import static org.assertj.core.api.Assertions.assertThat;

import com.sun.management.ThreadMXBean;
import io.fluxccl.DataType;
import io.fluxccl.ReduceOp;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.testing.AllocatedBytes;
import io.fluxccl.testkit.LocalRanks;
import java.lang.management.ManagementFactory;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import reactor.core.publisher.Mono;
import reactor.core.publisher.Operators;

/** Many runs in flight, each of which needs only a little memory. */
@Timeout(120)
class RunThroughputTest {
  private static final int MANY = 10_000;
  private static final Duration LONG = Duration.ofSeconds(60);

  /** Limit of the bytes that a run allocates on the subscribing thread; it needs about half. */
  private static final long BYTES_PER_RUN = 800;

  private final ThreadMXBean threads = (ThreadMXBean) ManagementFactory.getThreadMXBean();
  private final SteppedFamily family = new SteppedFamily();
  private final LocalRanks ranks = LocalRanks.of(2);
  private Collectives collectives;
  private DeviceBuffer x;

  @AfterEach
  void close() {
    family.step(10 * MANY); // completes all pending steps
    ranks.close();
  }

  private Mono<Void> run() {
    collectives = family.open(ranks, CollectivesOptions.DEFAULT);
    x = ranks.ranks().get(0).device().allocate(1024);
    return collectives.allReduce(x, DataType.INT32, ReduceOp.SUM);
  }

  @Test
  void shouldNeedNoThreadForRunsInFlight() throws Exception {
    Mono<Void> run = run();
    family.step(1);
    run.block(LONG); // threads and classes of the first run
    int before = threads.getThreadCount();
    List<CompletableFuture<Void>> runs = new ArrayList<>();
    for (int i = 0; i < MANY; i++) {
      runs.add(run.toFuture());
    }
    assertThat(family.enqueued).hasValue(1 + MANY);
    assertThat(threads.getThreadCount()).isLessThan(before + MANY / 100); // of the process
    assertThat(runs).noneMatch(CompletableFuture::isDone);
    family.step(MANY);
    CompletableFuture.allOf(runs.toArray(CompletableFuture[]::new)).get(60, TimeUnit.SECONDS);
    assertThat(threads.getThreadCount()).isLessThan(before + MANY / 100); // of the process
  }

  @Test
  void shouldAllocateLittleForARun() {
    Mono<Void> run = run();
    long best =
        AllocatedBytes.least(
                BYTES_PER_RUN * MANY,
                () -> {
                  family.step(MANY);
                  for (int i = 0; i < MANY; i++) {
                    run.subscribe(Operators.drainSubscriber());
                  }
                  collectives.pipeline().run().block(LONG);
                })
            / MANY;
    System.out.println("bytes a run: " + best);
    assertThat(best).isLessThan(BYTES_PER_RUN);
  }
}
