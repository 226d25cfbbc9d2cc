// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import static org.assertj.core.api.Assertions.assertThat;
import static org.awaitility.Awaitility.await;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.fluxccl.FluxCclException;
import io.fluxccl.testing.TestJvms;
import io.fluxccl.testkit.ProcessRank;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.junit.jupiter.api.AutoClose;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** The script {@code fluxccl}, in a tree whose JDK and Maven are scripts of the test. */
@Tag("multiprocess")
@Timeout(120)
class ScriptTest {
  private static final List<String> UNSHARE =
      List.of("unshare", "--pid", "--fork", "--mount-proc", "--kill-child");

  /** Prints its arguments, a line each. */
  private static final String PRINT = "for each; do echo \"$each\"; done";

  /** As a JVM that does not handle signals yet. */
  private static final String HANG = "touch \"$BEGUN\"; exec sleep 100";

  @TempDir private Path home;
  private Path begun;
  @AutoClose private ProcessRank process;

  @BeforeEach
  void make() throws IOException {
    begun = home.resolve("begun");
    Files.copy(Path.of("fluxccl"), home.resolve("fluxccl"));
    script("jdk/bin/java", PRINT);
    script("jdk/bin/javac", "");
    script("mvnw", "exit 1");
    file("jdk/release", "JAVA_VERSION=\"17.0.1\"\n");
    file("target/classes/io/fluxccl/cli/Main.class", "");
    file("target/lib/logback-core-1.5.20.jar", "");
    file("target/lib/netty-common-4.2.18.Final.jar", "");
    file("pom.xml", "");
    file("target/fluxccl-built", "");
  }

  private Path file(String name, String text) throws IOException {
    Path path = home.resolve(name);
    Files.createDirectories(path.getParent());
    return Files.writeString(path, text);
  }

  private void script(String name, String text) throws IOException {
    assertThat(file(name, "#!/bin/sh\n" + text + "\n").toFile().setExecutable(true)).isTrue();
  }

  /** Starts the script as the arguments of another command. */
  private void start(List<String> before, Map<String, String> variables, String... arguments) {
    process =
        TestJvms.program(List.of(home.resolve("fluxccl").toString()))
            .prefix(before)
            .arguments(arguments)
            .removeVariables(name -> name.startsWith("FLUXCCL_") || name.contains("JAVA"))
            .variables(Map.of("JAVA_HOME", "" + home.resolve("jdk"), "BEGUN", "" + begun))
            .variables(variables)
            .startRank(0);
  }

  private String out() {
    return process.output();
  }

  private int code() {
    return process.end();
  }

  /** Returns the arguments that the JVM gets. */
  private List<String> arguments(Map<String, String> variables, String... arguments)
      throws Exception {
    start(List.of(), variables, arguments);
    assertThat(code()).as(out()).isZero();
    return out().lines().toList();
  }

  /** Returns the class path of an application that runs with this one. */
  private String classPathWith(Object own) throws Exception {
    List<String> jvm = arguments(Map.of("FLUXCCL_CLASSPATH", own.toString()), "exec", "Hello");
    return jvm.get(jvm.indexOf("-cp") + 1);
  }

  private String ownClassPath() {
    return home.resolve("target/classes") + ":" + home.resolve("target/lib") + "/*";
  }

  @Test
  void shouldChooseTheOptionsOfItsOwnCommands() throws Exception {
    assertThat(arguments(Map.of("FLUXCCL_CLASSPATH", "app.jar"), "perf", "all-reduce"))
        .contains(
            "--add-opens=java.base/jdk.internal.misc=ALL-UNNAMED",
            "-XX:+UseSerialGC",
            "-Dagrona.disable.bounds.checks=true",
            "-Dlogback.configurationFile=io/fluxccl/cli/logback-cli.xml")
        .endsWith("-cp", "app.jar:" + ownClassPath(), "io.fluxccl.cli.Main", "perf", "all-reduce");
    assertThat(arguments(Map.of(), "exec", "io.fluxccl.samples.Sample", "x"))
        .contains("-XX:+UseSerialGC", "-Dagrona.disable.bounds.checks=true")
        .endsWith("-cp", ownClassPath(), "io.fluxccl.samples.Sample", "x");
  }

  @Test
  void shouldRunBenchmarksWithTheTestsAndTheirLibraries() throws Exception {
    file("target/fluxccl-bench-built", "");
    file("target/bench-class-path", "junit.jar:jmh.jar");

    List<String> arguments =
        arguments(Map.of("FLUXCCL_CLASSPATH", "own.jar"), "bench", "soak", "x");

    String tests = home.resolve("target/test-classes") + ":junit.jar:jmh.jar:own.jar:";
    assertThat(arguments)
        .contains("-XX:+UseSerialGC")
        .endsWith("-cp", tests + ownClassPath(), "io.fluxccl.cli.BenchMain", "soak", "x");
  }

  @ParameterizedTest
  @ValueSource(strings = {"FLUXCCL_JAVA_OPTS", "JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS"})
  void shouldLeaveTheCollectorToTheUsersOptions(String variable) throws Exception {
    String collectors = "-Xmx1g -XX:+UseZGC";
    assertThat(arguments(Map.of(variable, collectors), "perf"))
        .noneMatch(option -> option.endsWith("UseSerialGC"));
    assertThat(arguments(Map.of(variable, "-Xmx1g -XX:+UseGCOverheadLimit"), "perf"))
        .contains("-XX:+UseSerialGC");
  }

  @Test
  void shouldStartAJvmWithTheUsersCollector() throws Exception {
    List<String> arguments = arguments(Map.of("FLUXCCL_JAVA_OPTS", "-XX:+UseZGC"), "--version");
    List<String> command = new ArrayList<>();
    command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
    command.addAll(arguments.subList(0, arguments.indexOf("-cp")));
    command.addAll(List.of("-Xmx64m", "-version"));
    TestJvms.run(command);
  }

  @Test
  void shouldSetOnlyOptionsThatTheLibraryNeedsIfItRunsAnApplication() throws Exception {
    Map<String, String> variables =
        Map.of("FLUXCCL_CLASSPATH", ".:app.jar", "FLUXCCL_JAVA_OPTS", "-Xmx1g");
    assertThat(arguments(variables, "exec", "Hello", "x"))
        .containsExactly(
            "--add-opens=java.base/jdk.internal.misc=ALL-UNNAMED",
            "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
            "-Xmx1g",
            "-cp",
            ".:app.jar:" + ownClassPath() + ":" + home.resolve("src/main/exec"),
            "Hello",
            "x");
    assertThat(Path.of("src/main/exec/logback.xml"))
        .hasSameTextualContentAs(Path.of("src/main/resources/io/fluxccl/cli/logback-cli.xml"));
  }

  @Test
  void shouldAddNothingToAClassPathThatHasTheLibrary() throws Exception {
    String jar = "io/fluxccl/group/RankGroup.class";
    file("app/lib/fluxccl-0.1.0.jar", jar);
    file("app/classes/" + jar, "");
    file("app/boot.jar", "BOOT-INF/lib/fluxccl-0.1.0.jar");
    for (String entry :
        List.of("app/lib/*", "app/lib/fluxccl-0.1.0.jar", "app/classes", "app/boot.jar")) {
      String classPath = "no-such.jar:" + home.resolve(entry);
      assertThat(classPathWith(classPath)).isEqualTo(classPath);
    }
  }

  @Test
  void shouldAddNoLoggerToAnApplicationThatHasOne() throws Exception {
    String logger =
        file("app/logger.jar", "META-INF/services/org.slf4j.spi.SLF4JServiceProvider").toString();
    for (String classPath : List.of(logger, home.resolve("app") + "/*")) {
      assertThat(classPathWith(classPath))
          .startsWith(classPath + ":" + home.resolve("target/classes") + ":")
          .contains("netty-common-4.2.18.Final.jar")
          .doesNotContain("logback-core", "src/main/exec");
    }
  }

  @Test
  void shouldAddNoConfigurationOfTheLogToAnApplicationThatHasOne() throws Exception {
    Path jar = file("app/configured.jar", "logback.xml");
    Path folder = file("app/classes/logback-test.xml", "<configuration/>").getParent();
    for (Path entry : List.of(jar, folder)) {
      assertThat(classPathWith(entry)).isEqualTo(entry + ":" + ownClassPath());
    }
  }

  private static void requireNamespaces() {
    try {
      TestJvms.run(Stream.concat(UNSHARE.stream(), Stream.of("true")).toList());
    } catch (AssertionError | FluxCclException e) {
      assumeTrue(false, "this user can't make a process namespace: " + e.getMessage());
    }
  }

  /** Sends SIGTERM to process 1 of the script's namespace, once what it runs has begun. */
  private void terminateProcessOne() {
    await().until(() -> Files.exists(begun));
    Stream<ProcessHandle> all = ProcessHandle.of(process.pid()).orElseThrow().descendants();
    all.filter(ScriptTest::isProcessOne).findFirst().orElseThrow().destroy();
  }

  private static boolean isProcessOne(ProcessHandle handle) {
    try {
      String status = Files.readString(Path.of("/proc", "" + handle.pid(), "status"));
      return status.matches("(?s).*NSpid:\\s+[0-9]+\\s+1\n.*");
    } catch (IOException e) {
      return false; // it has ended
    }
  }

  /** Before the JVM handles it, and during a build. */
  @ParameterizedTest
  @CsvSource({"jdk/bin/java, false", "mvnw, true"})
  void shouldEndAsProcessOneOnASigterm(String hanging, boolean builds) throws Exception {
    requireNamespaces();
    script(hanging, HANG);
    if (builds) {
      Files.delete(home.resolve("target/fluxccl-built"));
    }
    start(UNSHARE, Map.of(), "launch", "-n", "2", "--", "true");
    terminateProcessOne();
    assertThat(code()).isEqualTo(143);
  }

  @Test
  void shouldLetAJvmEndInItsOwnTimeAsProcessOne() throws Exception {
    requireNamespaces();
    script(
        "jdk/bin/java",
        "trap 'echo terminated; exit 7' TERM; read line; echo \"$line\"; touch \"$BEGUN\"\n"
            + "while :; do sleep 0.05; done");
    List<String> echo = new ArrayList<>(List.of("sh", "-c", "echo input | exec \"$@\"", "sh"));
    echo.addAll(UNSHARE);
    start(echo, Map.of(), "launch");
    terminateProcessOne();
    assertThat(code()).as(out()).isEqualTo(7);
    assertThat(out()).isEqualTo("input\nterminated");
  }
}
