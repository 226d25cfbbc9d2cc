// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import static org.assertj.core.api.Assertions.assertThat;
import static org.awaitility.Awaitility.await;

import io.fluxccl.testkit.ProcessRank;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.attribute.PosixFilePermissions;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** The command line in a locale with other digits, and in one that has ASCII letters only. */
@Tag("long")
@Tag("multiprocess")
@Timeout(300)
class LocaleCommandsTest {
  private static final List<String> ARABIC = List.of("-Duser.language=ar", "-Duser.country=EG");

  @TempDir private Path folder;

  /** Returns the command of {@code fluxccl} in a JVM with these options. */
  private static List<String> fluxccl(List<String> jvmOptions, String... args) {
    return command(Main.class, jvmOptions, args);
  }

  private static List<String> command(Class<?> main, List<String> jvmOptions, String... args) {
    List<String> command = PerfCommand.javaCommand(main.getName());
    command.addAll(1, jvmOptions);
    command.addAll(List.of(args));
    return command;
  }

  private ProcessRank start(List<String> command) {
    String runtime = folder.resolve("runtime").toString();
    return Cli.process(command)
        .variables(Map.of("FLUXCCL_DEVICE", "host", "FLUXCCL_RUNTIME_DIR", runtime))
        .startRank(0);
  }

  private Cli run(List<String> command) {
    try (ProcessRank process = start(command)) {
      return Cli.ended(process);
    }
  }

  @Test
  void shouldCountTheCollectivesOfASoak() {
    String[] options = {"soak", "--ranks", "2", "--seconds", "2", "--max-bytes", "65536"};
    Cli soak = run(command(BenchMain.class, ARABIC, options));
    assertThat(soak.code()).as(soak.err()).isZero();
    assertThat(soak.out()).matches("\\{\"collectives\":[1-9]\\d*,\"wrong\":0,[\\s\\S]*");
  }

  @Test
  void shouldAgreeWithARankOfAnotherLocale() {
    String options = String.join(" ", ARABIC);
    String rank =
        "[ $FLUXCCL_RANK = 0 ] || export JAVA_TOOL_OPTIONS='"
            + options
            + "'; FLUXCCL_CHECKS=1 exec \"$@\"";
    List<String> command = fluxccl(List.of(), "launch", "-n", "2", "--", "sh", "-c", rank, "sh");
    command.addAll(
        fluxccl(
            List.of(), "perf", "fused-all-reduce", "--jit-warmup", "0", "-n", "2", "-d", "half"));
    command.addAll(List.of("-b", "64K", "-e", "64K"));
    Cli perf = run(command);
    assertThat(perf.code()).as(perf.out() + perf.err()).isZero();
    assertThat(perf.err()).contains(options).doesNotContain("all ranks must call");
  }

  @Test
  void shouldKeepTheFileOfALiveJobThatItDumps() throws Exception {
    Path runtime =
        Files.createDirectory(
            folder.resolve("runtime"),
            PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rwx------")));
    List<String> perf = fluxccl(ARABIC, "perf", "all-reduce", "--ranks", "2", "-b", "1K");
    perf.addAll(List.of("-e", "1K", "-n", "2000000000", "--jit-warmup", "0"));
    try (ProcessRank job = start(perf)) {
      String pid = Long.toString(job.pid());
      for (List<String> locale : List.of(ARABIC, List.of("-Duser.language=en"), ARABIC)) {
        await()
            .atMost(Duration.ofSeconds(120))
            .untilAsserted(
                () -> {
                  Cli dump = run(fluxccl(locale, "dump", "--limit", "5000", pid));
                  assertThat(dump.out()).as(dump.err()).contains("2 ranks, of which 2 answer");
                });
        assertThat(names(runtime))
            .filteredOn(name -> !name.equals("ballots"))
            .hasSize(2)
            .allMatch(name -> name.matches("[0-9]+(-[0-9]+){3}"));
      }
      assertThat(job.errors()).noneMatch(line -> line.contains("Exception"));
    }
  }

  private static List<String> names(Path folder) throws IOException {
    try (Stream<Path> files = Files.list(folder)) {
      return files.map(file -> file.getFileName().toString()).toList();
    }
  }

  @Test
  void shouldNameTheLocaleInOneLineIfAPathCannotBeEncoded() {
    String accented = "$(printf '\\303\\274')";
    String script = "export LC_ALL=C FLUXCCL_RUNTIME_DIR=/tmp/" + accented + "; exec \"$@\"";
    List<String> perf = new ArrayList<>(List.of("sh", "-c", script, "sh"));
    perf.addAll(fluxccl(List.of(), "perf", "barrier", "--ranks", "1", "-n", "1"));
    Cli ran = run(perf);
    assertThat(ran.code()).as(ran.err()).isZero();
    assertThat(ran.err().lines().filter(line -> line.contains("set LC_ALL=C.UTF-8")))
        .as(ran.err())
        .hasSize(1);
    assertThat(ran.err()).contains("FLUXCCL_RUNTIME_DIR=/tmp/").doesNotContain("\tat ");

    String option = "export LC_ALL=C; exec \"$@\" --json /tmp/" + accented;
    List<String> json = new ArrayList<>(List.of("sh", "-c", option, "sh"));
    json.addAll(fluxccl(List.of(), "perf", "barrier", "--ranks", "1", "-n", "1"));
    Cli refused = run(json);
    assertThat(refused.code()).isEqualTo(ExitCode.USAGE);
    assertThat(refused.err().lines()).as(refused.err()).hasSize(1);
    assertThat(refused.err()).contains("--json").contains("set LC_ALL=C.UTF-8");
  }

  @Test
  void shouldNameTheLocaleInOneLineIfTheClassPathCannotBeDecoded() throws IOException {
    Path bundle = Files.createDirectories(folder.resolve("bundle"));
    Path bin = Files.createDirectories(bundle.resolve("runtime/bin"));
    Files.createDirectories(bundle.resolve("lib"));
    Files.writeString(bundle.resolve("runtime/release"), "JAVA_VERSION=\"17.0.1\"\n");
    Files.createSymbolicLink(bin.resolve("java"), Path.of("/bin/true"));
    Path script = Files.createDirectories(bundle.resolve("bin")).resolve("fluxccl");
    Files.copy(Path.of("fluxccl"), script, StandardCopyOption.COPY_ATTRIBUTES);
    String info = "export FLUXCCL_CLASSPATH=/tmp/$(printf '\\303\\274'); exec \"$0\" info";
    Cli refused = run(List.of("sh", "-c", "export LC_ALL=C; " + info, script.toString()));
    assertThat(refused.code()).as(refused.err()).isEqualTo(ExitCode.FAILURE);
    assertThat(refused.err().lines()).as(refused.err()).hasSize(1);
    assertThat(refused.err()).contains("set LC_ALL=C.UTF-8");
    String utf8 = "export LC_ALL=C.UTF-8; ";
    assertThat(run(List.of("sh", "-c", utf8 + info, script.toString())).code()).isZero();
  }
}
