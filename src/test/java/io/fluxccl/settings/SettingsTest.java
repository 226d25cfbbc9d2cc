// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.settings;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.InvalidUsage;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class SettingsTest {
  private static final Pattern VARIABLE = Pattern.compile("`(FLUXCCL_[A-Z_]+)`");

  /** Variables that pages describe in their text, not in a row of a table. */
  private static final Set<String> IN_TEXT =
      Set.of(
          "FLUXCCL_CLASSPATH",
          "FLUXCCL_CUBLASLT",
          "FLUXCCL_LOCAL_RANK",
          "FLUXCCL_LOCAL_SIZE",
          "FLUXCCL_NCCL",
          "FLUXCCL_NRANKS",
          "FLUXCCL_NVRTC",
          "FLUXCCL_PATIENCE",
          "FLUXCCL_RANK",
          "FLUXCCL_TLS_AUTHORITIES",
          "FLUXCCL_TLS_CERTIFICATE",
          "FLUXCCL_TLS_KEY",
          "FLUXCCL_TUNING");

  @ParameterizedTest
  @CsvSource(
      delimiter = '|',
      value = {
        "FLUXCCL_CHECKS | yes | FLUXCCL_CHECKS=yes: give 0 or 1",
        "FLUXCCL_NET_JMX | true | FLUXCCL_NET_JMX=true: give 0 or 1",
        "FLUXCCL_OVERLAP_LAUNCHES | off | FLUXCCL_OVERLAP_LAUNCHES=off: give 0 or 1",
        "FLUXCCL_RECORDER | many | FLUXCCL_RECORDER=many: give 0 to 1048576",
        "FLUXCCL_NET_STREAMS | 33 | FLUXCCL_NET_STREAMS=33: give 1 to 32",
        "FLUXCCL_NET_LATENCY | soon | give microseconds, for example 25.5",
        "FLUXCCL_TIMEOUT | soon | FLUXCCL_TIMEOUT=soon: give seconds, for example 30 or 0.5",
        "FLUXCCL_GPU_LINK | NVSwitch | FLUXCCL_GPU_LINK=NVSwitch: give nvlink or pcie",
        "FLUXCCL_LOG | loud | give error, warn, info, debug, trace or off"
      })
  void shouldNameTheVariableAndAllowedValuesWhenTextIsInvalid(
      String name, String text, String message) {
    assertThatThrownBy(() -> Settings.of(Map.of(name, text)).check())
        .isInstanceOf(InvalidUsage.class)
        .hasMessageContaining(name + "=" + text + ": give ")
        .hasMessageContaining(message);
  }

  @Test
  void shouldNotPrintTheTextOfASecret() {
    Settings settings = Settings.of(Map.of("FLUXCCL_UNIQUE_ID", "hunter2"));
    assertThatThrownBy(
            () ->
                settings.word(
                    "FLUXCCL_UNIQUE_ID",
                    text -> {
                      throw new InvalidUsage("give an id");
                    }))
        .hasMessage("FLUXCCL_UNIQUE_ID: give an id");
  }

  @Test
  void shouldPreferTheSystemPropertyAndNameIt() {
    Map<String, String> variables = Map.of("FLUXCCL_TLS", "0", "FLUXCCL_LOG", " Debug ");
    assertThat(new Settings(variables, name -> name.equals("fluxccl.tls") ? "1" : null))
        .satisfies(settings -> assertThat(settings.flag("FLUXCCL_TLS")).isTrue())
        .satisfies(settings -> assertThat(settings.word("FLUXCCL_LOG")).hasValue("debug"));
    assertThatThrownBy(() -> new Settings(variables, name -> "maybe").flag("FLUXCCL_TLS"))
        .hasMessage("fluxccl.tls=maybe: give 0 or 1");
    assertThat(Settings.of(Map.of("FLUXCCL_TLS", " ")).flag("FLUXCCL_TLS")).isFalse();
  }

  @Test
  void shouldMatchTheTablesOfThePages() throws IOException {
    Map<String, String> rows = new HashMap<>();
    for (Path page : filesUnder("docs").filter(file -> file.toString().endsWith(".md")).toList()) {
      for (String line : Files.readAllLines(page)) {
        String[] cells = line.replaceAll("\\[([^\\]]*)\\]\\([^)]*\\)", "$1").split(" *\\| *");
        if (line.startsWith("|")
            && cells.length >= 4
            && !cells[2].matches("`FLUXCCL_[A-Z_]+`|`--.*")) {
          Matcher variable = VARIABLE.matcher(cells[1]);
          while (variable.find()) {
            rows.put(variable.group(1), cells[2] + " | " + cells[3]);
          }
        }
      }
    }
    List<String> wrong = new ArrayList<>();
    for (Setting setting : Settings.all()) {
      String row = rows.remove(setting.name());
      // Some tables have the system property in the place of the default.
      String unset = setting.unset().isEmpty() ? "`" + setting.property() + "`" : setting.unset();
      String expected =
          (row != null && row.startsWith(" |") ? "" : unset) + " | " + setting.meaning();
      if (row == null ? !IN_TEXT.contains(setting.name()) : !row.equals(expected)) {
        wrong.add(setting.name() + " is: " + row + "; but the table has: " + expected);
      }
    }
    assertThat(wrong).isEmpty();
    assertThat(rows).isEmpty();
  }

  @Test
  void shouldHaveARowForEveryVariableThatTheSourcesRead() throws IOException {
    Set<String> read = new TreeSet<>();
    Pattern variable = Pattern.compile("\"(FLUXCCL_[A-Z_]+[A-Z])\"");
    for (Path file :
        Stream.of("src/main/java", "native/ncclnet").flatMap(SettingsTest::filesUnder).toList()) {
      Matcher matcher = variable.matcher(Files.readString(file));
      while (matcher.find()) {
        read.add(matcher.group(1));
      }
    }
    assertThat(read).contains("FLUXCCL_SHM_DIR", "FLUXCCL_NET_JAVA_HOME");
    Set<String> names = new HashSet<>();
    Settings.all().forEach(row -> names.add(row.name()));
    assertThat(names).containsAll(read).hasSameSizeAs(Settings.all());
  }

  @Test
  void shouldPointOutAVariableThatNothingReads() {
    Map<String, String> variables = Map.of("FLUXCCL_TIMOUT", "5", "FLUXCCL_RANK", "0", "HOME", "/");
    assertThat(Settings.of(variables).unknown())
        .containsExactly(
            "FLUXCCL_TIMOUT is set, which nothing reads; did you mean FLUXCCL_TIMEOUT");
  }

  @Test
  void shouldNotReportKubernetesServiceVariablesAsMisspelled() {
    Map<String, String> variables = new HashMap<>();
    for (String service : List.of("FLUXCCL", "FLUXCCL_TRAIN")) {
      variables.put(service + "_SERVICE_HOST", "10.0.0.11");
      variables.put(service + "_SERVICE_PORT", "80");
      variables.put(service + "_SERVICE_PORT_HTTP", "80");
      variables.put(service + "_PORT", "tcp://10.0.0.11:80");
      variables.put(service + "_PORT_80_TCP", "tcp://10.0.0.11:80");
      variables.put(service + "_PORT_80_TCP_PROTO", "tcp");
      variables.put(service + "_PORT_80_TCP_PORT", "80");
      variables.put(service + "_PORT_80_TCP_ADDR", "10.0.0.11");
      variables.put(service + "_PORT_53_UDP", "udp://10.0.0.11:53");
    }
    assertThat(Settings.of(variables).unknown()).isEmpty();
    assertThat(Settings.of(Map.of("FLUXCCL_PORT", "29500")).unknown()).hasSize(1);
    assertThat(Settings.of(Map.of("FLUXCCL_PORT_RANG", "1-2")).unknown()).hasSize(1);
  }

  private static Stream<Path> filesUnder(String folder) {
    try {
      return Files.walk(Path.of(folder)).filter(Files::isRegularFile);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }
}
