// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.mockito.Mockito.mock;
import static org.mockito.Mockito.when;

import io.fluxccl.InvalidUsage;
import io.fluxccl.OptionalLibrary;
import io.fluxccl.benchmarks.Row;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.TransportProvider;
import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.IOException;
import java.io.OutputStream;
import java.io.PrintStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.ServiceConfigurationError;
import java.util.Set;
import java.util.function.Supplier;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

@Tag("jdk")
class MainTest {
  /** Of no root. */
  private static final String UNIQUE_ID =
      "WFVMRgIABH8AAAEAAAAAPHMAAwYJDA8SFRgbHiEkJyotMDM2OTw/QkVIS05RVFdaXQAAAAAAAAAA"
          + "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
          + "AAAAAAAAAAAAAByyCNg=";

  private static final FakeBackend BACKEND = new FakeBackend();

  @Test
  void shouldShowHelpAndVersion() {
    assertThat(Cli.run(BACKEND, "--help").out()).contains("perf", "launch", "info");
    assertThat(Cli.run(BACKEND, "perf", "all-reduce", "--help").out())
        .contains("--ranks", "--jit-warmup", "--json");
    assertThat(Cli.run(BACKEND, "--version").out()).matches("fluxccl \\d+\\.\\d+\\.\\S+\\s+");
  }

  @Test
  void shouldFailIfStandardOutputCannotBeWritten() throws IOException {
    OutputStream full = OutputStream.nullOutputStream();
    full.close(); // what is written then fails
    ByteArrayOutputStream err = new ByteArrayOutputStream();
    CliContext context =
        new CliContext(
            BACKEND, "main", Map.of(), new PrintStream(full), new PrintStream(err, true));
    assertThat(RootCommand.run(context, "info")).isEqualTo(ExitCode.FAILURE);
    assertThat(err.toString()).contains("standard output can't be written");
  }

  @Test
  void shouldLeaveNoTemporaryFileWhenAResultCannotBeWritten(@TempDir Path folder)
      throws IOException {
    Path taken = Files.createDirectories(folder.resolve("result").resolve("inside")).getParent();
    assertThatThrownBy(() -> new ResultFile("json", taken).write("[]"))
        .isInstanceOf(InvalidUsage.class);
    try (Stream<Path> left = Files.list(folder)) {
      assertThat(left).containsExactly(taken);
    }
  }

  @Test
  void shouldReportMissingCommandsAndArguments() {
    Cli.run(BACKEND).assertFails(ExitCode.USAGE, "no command given");
    Cli.run(BACKEND, "perf").assertFails(ExitCode.USAGE, "try 'fluxccl perf all-reduce'");
    Cli.run(BACKEND, "launch", "-n", "0", "true").assertFails(ExitCode.USAGE, "ranks=0");
    Cli.run(BACKEND, "launch", "-n", "2").assertFails(ExitCode.USAGE);
  }

  @Test
  void shouldNameTheLibraryThatTheClassPathLacks() throws Exception {
    List<String> command = PerfCommand.javaCommand(Main.class.getName());
    int classPath = command.indexOf("-cp") + 1;
    command.set(
        classPath,
        Stream.of(command.get(classPath).split(File.pathSeparator))
            .filter(entry -> !entry.contains("picocli"))
            .collect(Collectors.joining(File.pathSeparator)));

    Cli failed = Cli.run(Cli.process(command));

    assertThat(failed.err().lines())
        .contains(
            "fluxccl: the command line can't start: picocli is not on the class path; add the Maven"
                + " dependency "
                + OptionalLibrary.PICOCLI.coordinates());
    assertThat(failed.code()).isEqualTo(ExitCode.USAGE);
  }

  @Test
  void shouldPrintTheSystemReportWithoutTheSecret() {
    Map<String, String> variables =
        Map.of(RankVariables.SECRET, "hunter2", "FLUXCCL_LOG", "debug", "HOME", "/home-of-nobody");
    assertThat(Cli.run(BACKEND, variables, "info").assertOk().out())
        .contains("host: ", "CUDA driver", "any: ", "CUDA_IPC", "FLUXCCL_LOG", "(secret)")
        .doesNotContain("hunter2", "/home-of-nobody");
    assertThat(Cli.run(BACKEND, Map.of(), "info").assertOk().out())
        .endsWith("environment\n  no FLUXCCL_ variable is set\n");
  }

  @Test
  void shouldShowTheDirectoryOfSharedMemoryThatTheUserChose(@TempDir Path folder) {
    assertThat(infoWith("FLUXCCL_SHM_DIR", folder.toString()).out())
        .contains("shared memory in " + folder + " (");
    String missing = folder.resolve("missing").toString();
    assertThat(infoWith("FLUXCCL_SHM_DIR", missing).out())
        .contains("FLUXCCL_SHM_DIR=" + missing + " is no directory that this user can write to");
  }

  @Test
  void shouldShowTheTemporaryDirectoryIfThatOfSharedMemoryCannotBeWritten(@TempDir Path folder) {
    assertThat(SystemReport.sharedMemory(Map.of(), folder.resolve("absent")))
        .startsWith("shared memory in " + Path.of(System.getProperty("java.io.tmpdir")) + " (");
  }

  private static Cli infoWith(String variable, String value) {
    return Cli.run(BACKEND, Map.of(variable, value), "info");
  }

  @ParameterizedTest
  @ValueSource(strings = {"loud", "warning", "debug,info", "5"})
  void shouldRefuseALogLevelThatIsNone(String level) {
    Cli run = infoWith(RootCommand.LOG_VARIABLE, level);

    assertThat(run.code()).isEqualTo(ExitCode.USAGE);
    assertThat(run.out()).isEmpty();
    assertThat(run.err())
        .isEqualToIgnoringNewLines(
            "fluxccl: FLUXCCL_LOG=" + level + ": give error, warn, info, debug, trace or off");
  }

  @ParameterizedTest
  @ValueSource(strings = {"", " ", "warn", "DEBUG", " trace ", "off"})
  void shouldTakeALogLevelHoweverItIsWritten(String level) {
    assertThat(infoWith(RootCommand.LOG_VARIABLE, level).code()).isZero();
  }

  @Test
  void shouldShowOfAUniqueIdNothingThatAdmitsToTheJob() {
    String id = UNIQUE_ID;
    for (String given : List.of(id, id.substring(0, 100))) {
      for (String info : List.of("info", "info --json")) {
        Cli run = Cli.run(BACKEND, Map.of(RankVariables.UNIQUE_ID, given), info.split(" "));
        assertThat(run.code()).isZero();
        assertThat(run.out())
            .contains("FLUXCCL_UNIQUE_ID", given.equals(id) ? "fingerprint=" : "(secret)")
            .doesNotContain(id.substring(24, 64));
      }
    }
  }

  @Test
  void shouldPrintTheSystemReportAsJson() {
    Cli run = Cli.run(BACKEND, "info", "--json");

    assertThat(Row.read(run.out())).isInstanceOf(Map.class);
    assertThat(run.out()).contains("\"transports\"", "\"SHM\"");
  }

  @Test
  void shouldReportTransportsIfAProviderCannotBeLoaded() {
    TransportProvider provider = mock(TransportProvider.class);
    when(provider.transports()).thenReturn(Set.of(Transport.SHM, Transport.IB0));
    when(provider.unavailableBecause(Transport.SHM)).thenReturn(Optional.empty());
    when(provider.unavailableBecause(Transport.IB0)).thenReturn(Optional.of("there is no card"));
    Iterator<TransportProvider> providers =
        Stream.<Supplier<TransportProvider>>of(MainTest::cannotBeLoaded, () -> provider)
            .map(Supplier::get)
            .iterator();
    assertThat(SystemReport.transports(providers))
        .containsEntry("SHM", "available")
        .containsEntry("IB0", "not available, because there is no card")
        .containsEntry("NET", "not in this build")
        .containsEntry("(provider 1)", "can't be loaded: half a jar");
  }

  private static TransportProvider cannotBeLoaded() {
    throw new ServiceConfigurationError("half a jar");
  }
}
