// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.docs;

import static org.assertj.core.api.Assertions.assertThat;
import static org.junit.jupiter.api.Assumptions.assumeTrue;
import static org.junit.platform.engine.discovery.DiscoverySelectors.selectClass;

import io.fluxccl.ReduceOp;
import io.fluxccl.collective.CollectivesOptions;
import io.fluxccl.device.IntView;
import io.fluxccl.group.RankGroup;
import io.fluxccl.testing.SourceFiles;
import io.fluxccl.testkit.FaultKind;
import io.fluxccl.testkit.FaultPlan;
import io.fluxccl.testkit.LocalRanks;
import io.fluxccl.testkit.LocalRanksOptions;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import javax.tools.JavaCompiler;
import javax.tools.ToolProvider;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.platform.launcher.core.LauncherDiscoveryRequestBuilder;
import org.junit.platform.launcher.core.LauncherFactory;
import org.junit.platform.launcher.listeners.SummaryGeneratingListener;
import org.junit.platform.launcher.listeners.TestExecutionSummary.Failure;
import reactor.core.publisher.Mono;

/**
 * Compiles the tests of docs/0-ten-minutes.md and docs/4-testing.md from these pages, with the
 * program that they test, and runs them.
 */
@Tag("alone")
@Tag("jdk")
@Tag("multiprocess")
@Timeout(120)
public class TestsOfPagesTest {
  private static final int TESTS = 6;
  private static final Pattern BLOCK = Pattern.compile("(?s)```java\n(.*?)```");
  private static final Pattern METHOD = Pattern.compile("(?s)(@Test\n.*)?void should.*");
  private static final String IMPORTS =
      Stream.of(
              "static org.assertj.core.api.Assertions.*",
              "io.fluxccl.*",
              "io.fluxccl.collective.*",
              "io.fluxccl.device.*",
              "io.fluxccl.device.host.*",
              "io.fluxccl.docs.TestsOfPagesTest.Service",
              "io.fluxccl.group.*",
              "io.fluxccl.proxy.*",
              "io.fluxccl.testkit.*",
              "java.time.*",
              "java.util.*",
              "org.agrona.concurrent.AgentInvoker",
              "org.junit.jupiter.api.Test",
              "reactor.core.publisher.*",
              "reactor.test.*")
          .map(each -> "import " + each + ";\n")
          .collect(Collectors.joining());

  @TempDir private Path folder;

  private static List<String> blocks(String page) {
    return BLOCK
        .matcher(SourceFiles.text(Path.of("docs", page)))
        .results()
        .map(block -> block.group(1))
        .toList();
  }

  /** Returns the source of each class that the pages show. */
  static Map<String, String> sources() {
    List<String> first = blocks("0-ten-minutes.md");
    String tests =
        Stream.concat(first.stream(), blocks("4-testing.md").stream())
            .filter(block -> METHOD.matcher(block).matches())
            .map(method -> method.startsWith("@Test") ? method : "@Test\n" + method)
            .collect(Collectors.joining());
    return Map.of(
        "FirstAllReduce", first.get(0) + first.get(1),
        "PageTests", IMPORTS + "class PageTests {\n" + tests + "}\n");
  }

  @Test
  void shouldPassEachTestThatAPageShows() throws Exception {
    JavaCompiler compiler = ToolProvider.getSystemJavaCompiler();
    assumeTrue(compiler != null, "a runtime without a compiler");
    List<String> arguments = new ArrayList<>(List.of("-proc:none", "-d", folder.toString()));
    arguments.addAll(List.of("-cp", System.getProperty("java.class.path")));
    for (Map.Entry<String, String> source : sources().entrySet()) {
      Path file = folder.resolve(source.getKey() + ".java");
      arguments.add(Files.writeString(file, source.getValue()).toString());
    }
    assertThat(compiler.run(null, null, null, arguments.toArray(String[]::new))).isZero();
    SummaryGeneratingListener listener = new SummaryGeneratingListener();
    ClassLoader parent = getClass().getClassLoader();
    try (URLClassLoader loader = new URLClassLoader(new URL[] {folder.toUri().toURL()}, parent)) {
      LauncherFactory.create()
          .execute(
              LauncherDiscoveryRequestBuilder.request()
                  .selectors(selectClass(loader.loadClass("PageTests")))
                  .build(),
              listener);
    }
    assertThat(listener.getSummary().getFailures()).extracting(Failure::getException).isEmpty();
    assertThat(listener.getSummary().getTestsSucceededCount()).isEqualTo(TESTS);
  }

  /** The service of docs/4-testing.md. */
  public static final class Service {
    public static void main(String[] arguments) {
      try (RankGroup group = RankGroup.fromEnvironment().join()) {
        System.out.println("serving");
        Mono.fromFuture(group.communicator().failed())
            .doOnNext(e -> System.out.println("rank " + e.rank() + " is to blame: " + e.code()))
            .block();
      }
    }
  }

  /** Of docs/4-testing.md, which shows its beginning. */
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
