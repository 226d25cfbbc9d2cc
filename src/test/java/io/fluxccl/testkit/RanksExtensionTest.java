// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.testkit;

import static org.assertj.core.api.Assertions.assertThat;
import static org.junit.platform.engine.discovery.DiscoverySelectors.selectMethod;

import io.fluxccl.ReduceOp;
import io.fluxccl.collective.Collectives;
import io.fluxccl.device.ByteView;
import io.fluxccl.device.IntView;
import io.fluxccl.device.host.HostDevice;
import io.fluxccl.group.Rank;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import org.junit.platform.launcher.core.LauncherDiscoveryRequestBuilder;
import org.junit.platform.launcher.core.LauncherFactory;
import org.junit.platform.launcher.listeners.SummaryGeneratingListener;
import org.junit.platform.launcher.listeners.TestExecutionSummary;

/** Usage of {@link Ranks}, and its errors for wrong tests. */
@Tag("alone")
@Ranks(2)
@Tag("jdk")
class RanksExtensionTest {
  private final Set<Integer> seen = ConcurrentHashMap.newKeySet();

  @Test
  @Ranks(4)
  void shouldRunOnEachRank(LocalRank rank, Collectives collectives) {
    try (IntView x = rank.device().allocateInts(1)) {
      x.put(0, rank.rank());
      collectives.allReduce(x, ReduceOp.SUM).block(Duration.ofSeconds(30));
      assertThat(x.get(0)).isEqualTo(6);
    }
    seen.add(rank.rank());
    rank.awaitAll();
    assertThat(seen).containsExactlyInAnyOrder(0, 1, 2, 3);
  }

  @ParameterizedTest
  @ValueSource(ints = {3, 5})
  void shouldTakeTheRanksOfTheClassAndOtherArguments(
      int factor, Rank rank, Collectives collectives) {
    assertThat(rank.communicator()).isSameAs(collectives.communicator());
    assertThat(collectives.communicator().bootstrap().nRanks()).isEqualTo(2);
    assertThat(factor).isIn(3, 5);
  }

  @Test
  @Ranks(value = 4, hosts = 2)
  void shouldPretendHosts(LocalRanks ranks) {
    assertThat(ranks.ranks()).hasSize(4);
    assertThat(ranks.ranks().get(0).communicator().bootstrap().hostHash(0))
        .isNotEqualTo(ranks.ranks().get(0).communicator().bootstrap().hostHash(3));
  }

  /** Each test of it is wrong in another way. */
  @Tag("fixture")
  static class Wrong {
    private static final List<Object> KEPT = new ArrayList<>();

    @Test
    @Ranks(3)
    void fails(LocalRank rank) {
      if (rank.rank() == 1) {
        throw new IllegalStateException("rank 1 is wrong");
      }
      rank.awaitAll();
    }

    @Test
    @Ranks(2)
    void leaksMemory(LocalRank rank) {
      ByteView memory = rank.device().allocateBytes(1 << 20);
      KEPT.add(memory);
    }

    @Test
    @Ranks(1)
    void leaksThreads() {
      HostDevice device = HostDevice.create();
      device.createStream("forgotten").completion().join();
      KEPT.add(device);
    }

    @Test
    @Ranks(value = 1, leakCheck = false)
    void mayLeak(LocalRank rank) {
      KEPT.add(rank.device().allocateBytes(1 << 20));
    }

    @Test
    @Ranks(value = 3, hosts = 2)
    void hasUnevenHosts(LocalRank rank) {}
  }

  private static String failureOf(String method) {
    return failureOf(Wrong.class, method, 500);
  }

  /** Runs one test of a class, and returns its failure, or an empty text. */
  static String failureOf(Class<?> type, String method, int patienceMillis) {
    SummaryGeneratingListener summary = new SummaryGeneratingListener();
    LauncherFactory.create()
        .execute(
            LauncherDiscoveryRequestBuilder.request()
                .selectors(selectMethod(type.getName() + "#" + method))
                .configurationParameter(RanksExtension.LEAK_PATIENCE, "" + patienceMillis)
                .build(),
            summary);
    TestExecutionSummary all = summary.getSummary();
    assertThat(all.getTestsStartedCount()).isEqualTo(1);
    return all.getFailures().isEmpty() ? "" : all.getFailures().get(0).getException().toString();
  }

  @Test
  @Ranks(value = 1, leakCheck = false)
  void shouldReportFailuresLeaksAndInvalidAnnotations() {
    String rank = "(" + LocalRank.class.getName() + ")";
    assertThat(failureOf("fails" + rank)).contains("rank 1 is wrong");
    assertThat(failureOf("leaksMemory" + rank)).contains("leaked:", "/fluxccl-");
    assertThat(failureOf("leaksThreads")).contains("leaked:", "forgotten");
    assertThat(failureOf("mayLeak" + rank)).isEmpty();
    assertThat(failureOf("hasUnevenHosts" + rank)).contains("@Ranks(3) hosts=2");
  }
}
