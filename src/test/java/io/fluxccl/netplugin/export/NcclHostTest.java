// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.export;

import static org.assertj.core.api.Assertions.assertThat;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.fluxccl.testing.Rounds;
import io.fluxccl.testing.TestJvms;
import io.fluxccl.testkit.ProcessRank;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import javax.tools.JavaCompiler;
import javax.tools.ToolProvider;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

/**
 * {@code libnccl-net-fluxccl.so} in a process that is no Java's: the C program in
 * src/test/native/ncclnet loads it as NCCL does.
 */
class NcclHostTest {
  private static final Path FOLDER = Path.of("target", "ncclnet").toAbsolutePath();
  private static final Path HOST = FOLDER.resolve("host");
  private static final Path LIBRARY = FOLDER.resolve("libnccl-net-fluxccl.so");
  private static final Duration LIMIT = Duration.ofSeconds(180);

  /** Runs the host with an address space of 300 MB. */
  private static final String LIMITED = "#!/bin/sh\nulimit -v 300000\nexec " + HOST + " \"$@\"\n";

  @TempDir private Path outputs;

  /** The program that loads the library. */
  private Path host = HOST;

  @BeforeAll
  static void checkThatItWasBuilt() {
    assumeTrue(
        Files.exists(LIBRARY) && Files.exists(HOST),
        "libnccl-net-fluxccl.so or its host was not built: no C compiler");
  }

  private record Outcome(int status, String output) {}

  private Outcome run(int version, String scenario, Map<String, String> environment)
      throws IOException, InterruptedException {
    List<String> command = List.of("" + host, "" + LIBRARY, "" + version, scenario);
    try (ProcessRank process =
        TestJvms.program(command)
            .removeVariables(name -> name.startsWith("FLUXCCL_"))
            .variables(
                Map.of(
                    "FLUXCCL_NET_IFNAME", "=lo",
                    "FLUXCCL_NET_JAVA_HOME", System.getProperty("java.home"),
                    // Each process is over before compiling well has paid.
                    "FLUXCCL_NET_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1"))
            .variables(environment)
            .limit(LIMIT)
            .startRank(0)) {
      return new Outcome(process.end(), process.output());
    }
  }

  private String succeed(int version, String scenario, Map<String, String> environment)
      throws IOException, InterruptedException {
    Outcome outcome = run(version, scenario, environment);
    assertThat(outcome.output).contains("ok " + scenario + " v" + version);
    assertThat(outcome.status).isZero();
    return outcome.output;
  }

  /** Of NCCL's plugin API: in the loop those at either end. */
  private static IntStream versions() {
    return Rounds.LONG ? IntStream.rangeClosed(6, 12) : IntStream.of(6, 12);
  }

  /** Of two that differ in what they ask of a plugin; the newer in the loop. */
  private static IntStream olderAndNewer() {
    return Rounds.LONG ? IntStream.of(6, 11) : IntStream.of(11);
  }

  @ParameterizedTest
  @MethodSource("versions")
  void shouldMoveThirtyTwoMessagesAtATimeFromFourThreads(int version) throws Exception {
    String output = succeed(version, "transfer", Map.of());
    assertThat(output).contains("network fluxccl with 1 devices").doesNotContain("log 2");
  }

  /** A scenario of the host, its variables, and its output; warnings only if they are expected. */
  private record Scenario(String name, Map<String, String> variables, String... printed) {}

  private static Stream<Arguments> scenarios() {
    Map<String, String> none = Map.of();
    Map<String, String> streams = Map.of("FLUXCCL_NET_STREAMS", "4", "FLUXCCL_NET_THREADS", "2");
    List<Scenario> scenarios =
        List.of(
            new Scenario("transfer", streams),
            new Scenario("close", streams),
            new Scenario("close", none),
            new Scenario("rounds", none),
            new Scenario("groups", Map.of("FLUXCCL_NET_STREAMS", "1")),
            new Scenario("groups", Map.of("FLUXCCL_NET_STREAMS", "3")),
            new Scenario("signal", none, "ok signal"),
            new Scenario("fork", none, "init in a forked child"),
            new Scenario("kill", none, "receive from 127.0.0.1:", "send to 127.0.0.1:"),
            new Scenario(
                "deadline",
                Map.of("FLUXCCL_NET_TIMEOUT", "0.5"),
                "receive from 127.0.0.1:\\d+ .* took longer than 0.5 s"),
            new Scenario("misuse", none, "it sent 128 bytes", "it answered INVALID_USAGE"),
            new Scenario("codes", none, "32 requests are in flight", "256 requests of 127.0.0.1:"),
            new Scenario(
                "codes",
                Map.of("FLUXCCL_NET_JAVA_OPTIONS", "-XX:+UseParallelGC"), // in place of its own
                "32 requests are in flight"),
            new Scenario("senders", Map.of("FLUXCCL_NET_STREAMS", "2")),
            new Scenario(
                "no-java",
                Map.of("FLUXCCL_NET_JAVA_HOME", "/nothere"),
                "/nothere/lib/server/libjvm.so",
                "failed to start before"), // and is not tried again
            new Scenario(
                "no-java",
                Map.of("FLUXCCL_NET_CLASSPATH", "/nothere"),
                "does not find FluxCCL's class",
                "FLUXCCL_NET_CLASSPATH"));
    return olderAndNewer()
        .boxed()
        .flatMap(version -> scenarios.stream().map(each -> Arguments.of(version, each)));
  }

  @ParameterizedTest
  @MethodSource("scenarios")
  void shouldServeItsHostInEachScenario(int version, Scenario scenario) throws Exception {
    String output = succeed(version, scenario.name, scenario.variables);
    for (String printed : scenario.printed) {
      assertThat(output).containsPattern(printed);
    }
    if (scenario.printed.length == 0) {
      assertThat(output).doesNotContain("log 2");
    }
  }

  /** Options with which a JVM ends its process, and what its log line says. */
  private static Stream<Arguments> refusals() {
    return Stream.of(
        Arguments.of("-XX:+UseG1GC -XX:+UseParallelGC", "Multiple garbage collectors selected"),
        Arguments.of("-Xmx900t", "heap"),
        Arguments.of("-agentpath:/nothere/agent.so", "/nothere/agent.so"),
        Arguments.of("-XX:+NoSuchOption", "NoSuchOption"));
  }

  @ParameterizedTest
  @MethodSource("refusals")
  void shouldLogWhyAndContinueIfTheJvmRefusesToStart(String options, String line) throws Exception {
    String output = succeed(11, "refused", Map.of("FLUXCCL_NET_JAVA_OPTIONS", options));
    assertThat(output.lines().filter(each -> each.startsWith("log 2: ")).findFirst().orElse(""))
        .contains("did not start", line, "FLUXCCL_NET_JAVA_OPTIONS");
    assertThat(output).contains("failed to start before in this process: the JVM of");
  }

  @Test
  void shouldContinueIfTheProcessHasTooLittleMemoryForAJvm() throws Exception {
    host = Files.writeString(outputs.resolve("limited"), LIMITED);
    assertThat(host.toFile().setExecutable(true)).isTrue();
    assertThat(succeed(11, "refused", Map.of())).contains("did not start");
  }

  /** Its class has some of the methods only, as an older FluxCCL's. */
  @Test
  void shouldLetNcclFinalizeAfterAnInitThatFailed() throws Exception {
    Path source = outputs.resolve("NetPluginExport.java");
    Files.writeString(
        source,
        "package io.fluxccl.netplugin.export;"
            + " public final class NetPluginExport { static int open() { return 1; } }");
    JavaCompiler compiler = ToolProvider.getSystemJavaCompiler();
    assumeTrue(compiler != null, "a runtime without a compiler");
    assertThat(compiler.run(null, null, null, "-d", outputs.toString(), source.toString()))
        .isZero();
    for (Map<String, String> environment :
        List.of(
            Map.of("FLUXCCL_NET_CLASSPATH", outputs.toString()),
            Map.of("FLUXCCL_NET_CLASSPATH", "/nothere"),
            Map.of("FLUXCCL_NET", "carrier-pigeon"),
            Map.of("FLUXCCL_NET_JAVA_HOME", "/nothere"))) {
      assertThat(succeed(11, "finalize", environment)).doesNotContain("called", "exception");
    }
  }

  @Test
  void shouldUseTheJvmThatRunsAlready() throws Exception {
    String jvm = System.getProperty("java.home") + "/lib/server/libjvm.so";
    assertThat(
            succeed(
                11,
                "transfer",
                Map.of("HOST_JVM", jvm, "HOST_CLASS_PATH", System.getProperty("java.class.path"))))
        .contains("uses the JVM that runs in this process");
    assertThat(succeed(11, "no-java", Map.of("HOST_JVM", jvm, "HOST_CLASS_PATH", "/nothere")))
        .contains("it ran before, start it with FluxCCL's jars");
  }

  /** NCCL loads FluxCCL's plugin, whose test network then loads that plugin again. */
  @Test
  void shouldFailIfTheNetworkLoadsItself() throws Exception {
    Outcome outcome =
        run(
            11,
            "transfer",
            Map.of(
                "FLUXCCL_NET",
                "renamed",
                "FLUXCCL_NET_CLASSPATH",
                System.getProperty("java.class.path"),
                "FLUXCCL_NET_JAVA_OPTIONS",
                "-Dfluxccl.test.renamed.net=" + LIBRARY));
    assertThat(outcome.status).as(outcome.output).isEqualTo(1);
    assertThat(outcome.output)
        .contains(
            "renamed: no network plugin was found; " + LIBRARY,
            "is FluxCCL's own plugin for NCCL, which would load FluxCCL into itself",
            "init: 2");
  }

  @Test
  void shouldNameANetworkThatIsNotThere() throws Exception {
    Outcome outcome = run(11, "transfer", Map.of("FLUXCCL_NET", "carrier-pigeon"));
    assertThat(outcome.status).isEqualTo(1);
    assertThat(outcome.output)
        .contains("FLUXCCL_NET=carrier-pigeon is not there; there is", "init: 5");
  }
}
