// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.docs;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.fail;

import io.fluxccl.DataType;
import io.fluxccl.ReduceOp;
import io.fluxccl.Timeout;
import io.fluxccl.collective.Collectives;
import io.fluxccl.collective.CollectivesOptions;
import io.fluxccl.device.AbortFlag;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.IntView;
import io.fluxccl.device.host.HostDevice;
import io.fluxccl.proxy.Fifo;
import io.fluxccl.proxy.FifoDeviceHandle;
import io.fluxccl.proxy.Proxy;
import io.fluxccl.proxy.ProxyHandlerResult;
import io.fluxccl.proxy.ProxyOptions;
import io.fluxccl.testkit.FaultKind;
import io.fluxccl.testkit.FaultPlan;
import io.fluxccl.testkit.LocalRanks;
import io.fluxccl.testkit.LocalRanksOptions;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import org.agrona.concurrent.AgentInvoker;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import reactor.test.StepVerifier;

/** The code of docs/4-testing.md. */
@org.junit.jupiter.api.Timeout(60)
@Tag("jdk")
class TestingTest {
  @Test
  void shouldSumOnEveryRank() {
    try (LocalRanks ranks = LocalRanks.of(3)) {
      ranks.run(
          rank -> {
            IntView x = rank.device().allocateInts(1);
            x.put(0, 14);
            try (Collectives collectives = Collectives.create(rank.communicator()).join()) {
              StepVerifier.create(collectives.allReduce(x, ReduceOp.SUM))
                  .expectComplete()
                  .verify(Duration.ofSeconds(30));
            }
            assertThat(x.get(0)).isEqualTo(42);
          });
    }
  }

  @Test
  void shouldHandleEachTriggerOnce() {
    List<Long> handled = new ArrayList<>();
    try (HostDevice device = HostDevice.create();
        AbortFlag abort = new AbortFlag(device);
        Proxy proxy =
            new Proxy(
                new Fifo(device, 16),
                (first, second, position) -> {
                  handled.add(first);
                  return ProxyHandlerResult.CONTINUE;
                },
                ProxyOptions.defaults());
        AgentInvoker stepper = new AgentInvoker(error -> fail(error), null, proxy)) {
      FifoDeviceHandle fifo = proxy.fifo().deviceHandle(abort);
      stepper.start();
      fifo.push(1, 0);
      fifo.push(2, 0);
      assertThat(handled).isEmpty();
      assertThat(stepper.invoke()).isEqualTo(2);
      assertThat(handled).containsExactly(1L, 2L);
    }
  }

  @Test
  void shouldTimeOutInVirtualTime() {
    try (LocalRanks ranks = LocalRanks.of(2)) {
      ranks.run(
          rank -> {
            DeviceBuffer x = rank.device().allocate(1024);
            Collectives collectives = Collectives.create(rank.communicator()).join();
            rank.awaitAll();
            if (rank.rank() == 0) {
              StepVerifier.withVirtualTime(
                      () -> collectives.allReduce(x, DataType.FLOAT32, ReduceOp.SUM))
                  .expectSubscription()
                  .expectNoEvent(Duration.ofSeconds(29))
                  .thenAwait(Duration.ofSeconds(1))
                  .expectError(Timeout.class)
                  .verify(Duration.ofSeconds(30));
            }
            assertThat(rank.communicator().failed().join()).isInstanceOf(Timeout.class);
          });
    }
  }

  @Test
  void shouldSumOverANetworkWithFaults() {
    FaultPlan plan = FaultPlan.seeded(42, 3, FaultKind.CUT, FaultKind.CORRUPT, FaultKind.DROP);
    LocalRanksOptions options =
        LocalRanksOptions.DEFAULT
            .withCollectives(CollectivesOptions.DEFAULT.withChecksums(true))
            .withFaults(plan);
    try (LocalRanks ranks = LocalRanks.ofHosts(3, 1, options)) {
      ranks.run(
          rank -> {
            try (IntView x = rank.device().allocateInts(1)) {
              x.put(0, 14);
              rank.collectives().allReduce(x, ReduceOp.SUM).block(Duration.ofSeconds(30));
              assertThat(x.get(0)).isEqualTo(42);
            }
          });
    }
  }
}
