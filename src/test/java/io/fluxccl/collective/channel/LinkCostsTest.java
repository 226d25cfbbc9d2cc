// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.channel;

import static io.fluxccl.collective.Collective.ALL_GATHER;
import static io.fluxccl.collective.Collective.ALL_REDUCE;
import static io.fluxccl.collective.Collective.ALL_TO_ALL;
import static io.fluxccl.collective.Collective.BROADCAST;
import static io.fluxccl.collective.Collective.REDUCE;
import static io.fluxccl.collective.Collective.REDUCE_SCATTER;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.within;

import io.fluxccl.collective.Collective;
import io.fluxccl.collective.channel.PipeAlgorithm.LinkCosts;
import io.fluxccl.device.DeviceKind;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestFactory;

/** Checks the model against its page, and the sizes at which the best algorithm changes. */
class LinkCostsTest {
  private static final Path PAGE = Path.of("docs", "reference", "scaling.md");
  private static final long[] SIZES = {64 << 10, 4 << 20, 256 << 20};
  private static final long SPLIT = Exchange.LEAST_SPLIT;

  private interface Cost {
    double micros(LinkCosts costs, long bytes);
  }

  private static Cost allPairs(Collective kind, boolean splits) {
    return (costs, bytes) -> costs.allPairs(kind, bytes, splits && bytes > SPLIT);
  }

  private static Cost hierarchical(Collective kind) {
    return (costs, bytes) -> costs.hierarchical(kind, bytes);
  }

  @TestFactory
  Stream<DynamicTest> shouldSayWhatThePageSays() {
    return Stream.of(
        agrees(
            "All-reduce, all-pairs / ring / hierarchical:",
            allPairs(ALL_REDUCE, true),
            LinkCosts::ring,
            hierarchical(ALL_REDUCE)),
        agrees(
            "All-gather and reduce-scatter, all-pairs / hierarchical:",
            allPairs(ALL_GATHER, false),
            hierarchical(REDUCE_SCATTER)),
        agrees(
            "All-to-all, all-pairs / hierarchical:",
            allPairs(ALL_TO_ALL, false),
            hierarchical(ALL_TO_ALL)),
        agrees(
            "Broadcast and reduce, all-pairs / hierarchical:",
            allPairs(BROADCAST, true),
            hierarchical(REDUCE)));
  }

  private static DynamicTest agrees(String title, Cost... methods) {
    return DynamicTest.dynamicTest(
        title,
        () -> {
          List<String[]> rows = rowsBelow(title);
          assertThat(rows).hasSize(2);
          for (String[] row : rows) {
            int gpus = Integer.parseInt(row[1]);
            LinkCosts costs = new LinkCosts(gpus, gpus / 8, 8, true);
            assertThat(row[2]).isEqualTo(Integer.toString(gpus / 8));
            for (int size = 0; size < SIZES.length; size++) {
              String[] cells = row[3 + size].split(" / ");
              assertThat(cells).hasSize(methods.length);
              for (int method = 0; method < methods.length; method++) {
                double millis = methods[method].micros(costs, SIZES[size]) / 1000;
                // The page shows three digits.
                assertThat(Double.parseDouble(cells[method]))
                    .as("%s, %d GPUs, %d bytes", title, gpus, SIZES[size])
                    .isCloseTo(millis, within(millis * 0.006));
              }
            }
          }
        });
  }

  /** The cells of a table's rows, of which the first is empty. */
  private static List<String[]> rowsBelow(String title) throws IOException {
    List<String> lines = Files.readAllLines(PAGE);
    return lines.subList(lines.indexOf(title) + 4, lines.size()).stream()
        .takeWhile(line -> line.startsWith("|"))
        .map(line -> line.split(" *\\| *"))
        .toList();
  }

  @Test
  void shouldPreferTheHierarchyForAllReducesOfEqualHosts() {
    for (int hosts = 2; hosts <= 64; hosts *= 2) {
      for (int each : new int[] {2, 8}) {
        LinkCosts costs = new LinkCosts(hosts * each, hosts, each, false);
        for (long bytes = 64; bytes <= 1L << 32; bytes *= 8) {
          assertThat(costs.hierarchical(ALL_REDUCE, bytes))
              .as("%d hosts of %d, %d bytes", hosts, each, bytes)
              .isLessThan(costs.allPairs(ALL_REDUCE, bytes, bytes > SPLIT));
        }
      }
    }
  }

  @Test
  void shouldPreferTheRingForMuchOverManyHosts() {
    LinkCosts many = new LinkCosts(256, 32, 8, true);
    assertThat(many.ring(16 << 20)).isGreaterThan(hier(many, 16 << 20));
    assertThat(many.ring(32 << 20)).isLessThan(hier(many, 32 << 20));
    LinkCosts few = new LinkCosts(64, 8, 8, true);
    assertThat(few.ring(1L << 33)).isGreaterThan(hier(few, 1L << 33));
  }

  private static double hier(LinkCosts costs, long bytes) {
    return costs.hierarchical(ALL_REDUCE, bytes);
  }

  @Test
  void shouldPreferFewerMessagesForSmallAllToAllsOnly() {
    assertCrossover(new LinkCosts(4, 2, 2, false), 64 << 10);
    assertCrossover(new LinkCosts(8, 2, 4, false), 252 << 10);
    assertCrossover(new LinkCosts(16, 4, 4, false), 1536 << 10);
    assertCrossover(new LinkCosts(4, 2, 2, true), 2_400_000);
    for (LinkCosts larger : List.of(new LinkCosts(8, 2, 4, true), new LinkCosts(6, 3, 2, true))) {
      assertThat(larger.hierarchical(ALL_TO_ALL, 1L << 32))
          .isLessThan(larger.allPairs(ALL_TO_ALL, 1L << 32, false));
    }
  }

  private static void assertCrossover(LinkCosts costs, long bytes) {
    for (long size : new long[] {bytes * 9 / 10, bytes * 11 / 10}) {
      boolean fewerMessages =
          costs.hierarchical(ALL_TO_ALL, size) < costs.allPairs(ALL_TO_ALL, size, false);
      assertThat(fewerMessages).as("%d bytes", size).isEqualTo(size < bytes);
    }
  }

  /** A host's memory for pipes is divided among its ranks. */
  @Test
  void shouldPreferTheRingIfManyRanksOfAHostHaveSmallSlots() {
    for (int nRanks : new int[] {96, 128}) {
      PipeLayout layout = PipeLayout.of(DeviceKind.HOST, nRanks, nRanks, 1);
      LinkCosts costs = new LinkCosts(nRanks, nRanks, 1, layout);
      assertThat(cheapest(costs, 1 << 10)).as("%d ranks", nRanks).isEqualTo("tree");
      assertThat(cheapest(costs, 64 << 10)).as("%d ranks", nRanks).isEqualTo("tree");
      assertThat(cheapest(costs, 4 << 20)).as("%d ranks", nRanks).isEqualTo("ring");
    }
    PipeLayout most = PipeLayout.of(DeviceKind.HOST, 128, 128, 1);
    assertThat(cheapest(new LinkCosts(128, 128, 1, most), 1 << 20)).isEqualTo("ring");
    assertThat(cheapest(new LinkCosts(128, 128, 1, false), 1 << 20)).isEqualTo("tree");
  }

  private static String cheapest(LinkCosts costs, long bytes) {
    Map<String, Double> all =
        Map.of(
            "all-pairs", costs.allPairs(ALL_REDUCE, bytes, bytes > SPLIT),
            "ring", costs.ring(bytes),
            "tree", costs.tree(ALL_REDUCE, bytes));
    return Collections.min(all.entrySet(), Map.Entry.comparingByValue()).getKey();
  }
}
